"""Phases of a start, grouped by what makes them long: reading weights, graphs, kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf

from mileage.doctor.check import Check, both
from mileage.doctor.collect.log_line import log_lines
from mileage.doctor.collect.startup_phases import StartupPhases
from mileage.doctor.contrast import Contrast
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.quantity import Quantity

__all__ = ["START_TIMES", "StartPhases", "cpu_saturated", "start_ratio"]

GRAPH_PHASES = (
    "startup_dynamo_s",
    "startup_compile_s",
    "startup_graph_capture_s",
    "startup_p2p_check_s",
)

START_TIMES = (
    "startup_total_s",
    "startup_first_response_s",
    "startup_engine_init_s",
    "startup_weights_s",
    "startup_kv_profile_s",
    "startup_graph_capture_s",
    "startup_compile_s",
    "latency_rel",
)
"""Signals that tell how long starts take, the whole first."""

SATURATED = 0.9
"""Share of the CPUs in use from which on processes wait for one."""

THROTTLED = 0.25
"""Share of CFS periods in which the quota ran out, from which on it and not the work sets the
pace: the group stands still for a part of every fourth period or more."""


class StartPhases:
    """What is known of the phases of the last start; those that are not known are not counted."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._logged = _logged_s(tuple(evidence.logs))
        self.weights = self._number("startup_weights_s")
        self.capture = self._number("startup_graph_capture_s")
        self.total = self._number("startup_total_s")
        self.silent = evidence.number("startup_silent_s")
        self.engine_init = self._number("startup_engine_init_s")
        self.graphs = self._sum("tracing, compiling, capture and checks", GRAPH_PHASES)
        """Tracing, compiling, CUDA-graph capture and the check of links, together."""
        self.kernels = self._kernels()
        """Profiling memory and warming kernels up."""
        self.known = self._sum(
            "the known phases",
            (*GRAPH_PHASES, "startup_weights_s", "startup_kv_profile_s", "startup_import_s"),
        )
        """All phases that are known: the start takes at least so long."""

    def largest(self, phase: Quantity) -> Check:
        """Is it longer than each of the other known groups (one at least), or half of all?"""
        others = [
            other
            for other in (self.weights, self.graphs, self.kernels)
            if other.key != phase.key and other.known
        ]
        half = phase.exceeds(self.total, 0.5)
        if half.truth is not None or not others:
            return half
        return both(*(phase.exceeds(other) for other in others))

    def smaller(self, phase: Quantity) -> Check:
        """Is it shorter than another known group?"""
        for other in (self.weights, self.graphs, self.kernels):
            check = other.exceeds(phase)
            if other.key != phase.key and check.truth:
                return check
        return Check(phase.key, phase.plain(), "shorter than another phase", None)

    def alone(self, phase: Quantity) -> Check:
        """Is it the only group that is known? Not known where it is not itself."""
        others = (self.weights, self.graphs, self.kernels, self.total)
        lonely = not any(other.known for other in others if other.key != phase.key)
        truth = lonely if phase.known else None
        return Check(phase.key, phase.plain(), "the only phase that is known", truth)

    def _number(self, name: str) -> Quantity:
        """As a signal, else as the log has it."""
        stated = self._evidence.number(name)
        if stated.known or name not in self._logged:
            return stated
        return Quantity(name, "s", "one", (exactly(self._logged[name]),))

    def _kernels(self) -> Quantity:
        """As a signal; else what the engine's start took beyond compiling and capture."""
        stated = self._number("startup_kv_profile_s")
        compiled, captured = self._number("startup_compile_s"), self.capture
        eager = self._evidence.is_true("enforce_eager").truth is True
        if stated.known or not self.engine_init.known:
            return stated
        if not eager and not (compiled.known and captured.known):
            return stated
        rest = self.engine_init.value
        if self.graphs.known:
            rest = rest.minus(self.graphs.value)
        rest = rest.clipped(0.0, inf)
        return Quantity(stated.key, "s", "one", (rest,))

    def _sum(self, key: str, names: tuple[str, ...]) -> Quantity:
        parts = [n.value for name in names if (n := self._number(name)).known]
        if not parts:
            return Quantity(key if len(names) > len(GRAPH_PHASES) else names[1], "s")
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.plus(part)
        return Quantity(key, "s", "one", (whole,))


@lru_cache(maxsize=2)
def _logged_s(lines: tuple[str, ...]) -> Mapping[str, float]:
    """Phases that log lines tell. Not the whole and its gaps: a report's lines are a selection.

    Several rules ask for the same lines, of which there may be many.
    """
    phases = StartupPhases()
    for line in log_lines(lines):
        phases.take(line)
    return {
        name: took
        for name, took in phases.signals().items()
        if name not in ("startup_total_s", "startup_silent_s") and isinstance(took, float)
    }


def cpu_saturated(e: Evidence) -> tuple[Check, Check, Check]:
    """Three ways to see that processes wait for CPUs: use, throttling, cores up to the quota."""
    cores, limit = e.number("cpu_cores_used"), e.number("k8s.cpu_limit")
    at_limit = cores.where(
        "at the CPU limit",
        lambda used: used.over(limit.value).at_least(SATURATED) if limit.known else None,
    )
    return (
        e.number("cpu_util_ratio").any_above(SATURATED),
        e.number("cpu_throttled_ratio").any_above(THROTTLED),
        at_limit,
    )


def start_ratio(pair: Contrast) -> Interval:
    """How many times as long the start of `one` takes; `ANY` where no signal of both tells."""
    ratio = pair.ratio_of(*START_TIMES)
    return ratio.value if ratio.known else ANY
