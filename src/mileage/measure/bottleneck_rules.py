"""The rules of each dimension, at one moment: what is asked of which figure, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.measure.gpu_sample import GpuSample
from mileage.measure.telemetry import Moment

__all__ = ["DIMENSIONS", "Answer", "Clause", "Dimension", "Figures", "ask", "figures_of"]

Dimension: TypeAlias = Literal["compute", "memory", "interconnect", "host"]
DIMENSIONS: tuple[Dimension, ...] = ("compute", "memory", "interconnect", "host")

_WORKING_MIN = 0.20
"""With fewer multiprocessors (or less time) at work, neither compute nor memory can be the limit:
nothing else reads device memory."""
_BUSY = ("sm_active_ratio", "gpu_util_ratio", "gr_active_ratio")
_MEMORY = ("dram_active_ratio", "mem_copy_util_ratio")
_GAPS = ("gpu_util_ratio", "gr_active_ratio", "sm_active_ratio")
"""Figures that can answer a question, best first. Gaps are what no kernel fills: the one thing that
shares of time tell better than counters of work."""


class Figures(msgspec.Struct, frozen=True, gc=False):
    """Which figures of a GPU are asked, the same in all looks of a window."""

    busy: str
    memory: str
    gaps: str

    @property
    def compute_by_time(self) -> bool:
        """GPU_UTIL is asked, as there are no counters."""
        return self.busy != _BUSY[0]

    @property
    def memory_by_time(self) -> bool:
        """MEM_COPY_UTIL is asked, as there are no counters."""
        return self.memory != _MEMORY[0]


class Clause(msgspec.Struct, frozen=True, gc=False):
    """One condition: `value` is above (or below) `threshold`.

    A guard that is not known leaves a rule in force, with less confidence; any other clause that is
    not known leaves the rule unknown.
    """

    figure: str
    value: float | None
    threshold: float
    above: bool
    guard: bool = False

    @property
    def met(self) -> bool | None:
        """None: not known."""
        if self.value is None:
            return None
        return self.value > self.threshold if self.above else self.value < self.threshold


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a rule says at one moment; `held` is None where it cannot be told.

    `clauses` are all that were asked, `decisive` those by which it held. `by_time`: it rests on
    shares of time (GPU_UTIL, MEM_COPY_UTIL), not on counters of work.
    """

    held: bool | None
    clauses: tuple[Clause, ...]
    decisive: tuple[Clause, ...] = ()
    by_time: bool = False


def figures_of(samples: Sequence[GpuSample]) -> Figures:
    """The best of the figures that are known in half of the looks; else the one known most."""

    def best(names: Sequence[str]) -> str:
        known = [sum(getattr(s, name) is not None for s in samples) for name in names]
        for name, count in zip(names, known, strict=True):
            if count and 2 * count >= len(samples):
                return name
        return names[known.index(max(known))]

    return Figures(best(_BUSY), best(_MEMORY), best(_GAPS))


def ask(dimension: Dimension, moment: Moment, config: BottleneckConfig, figures: Figures) -> Answer:
    """Whether the dimension held the GPU up at that moment."""
    return _RULES[dimension](moment, config, figures)


def _compute(moment: Moment, config: BottleneckConfig, figures: Figures) -> Answer:
    by_time = figures.compute_by_time
    threshold = config.gpu_util_min if by_time else config.sm_active_min
    return _all(
        _clause(moment, figures.busy, threshold, above=True),
        _clause(moment, figures.memory, config.mem_copy_util_max, above=False),
        by_time=by_time,
    )


def _memory(moment: Moment, config: BottleneckConfig, figures: Figures) -> Answer:
    by_time = figures.memory_by_time
    threshold = config.mem_copy_util_min if by_time else config.dram_active_min
    return _all(
        _clause(moment, figures.busy, _WORKING_MIN, above=True, guard=True),
        _clause(moment, figures.memory, threshold, above=True),
        Clause(*moment.sample.link, config.nvlink_quiet_max, above=False, guard=True),
        by_time=by_time,
    )


def _interconnect(moment: Moment, config: BottleneckConfig, figures: Figures) -> Answer:
    """Full links with a latency that jumped; or links that work while all else waits for them."""
    link = moment.sample.link
    full = _all(
        Clause(*link, config.nvlink_min, above=True),
        Clause("latency_ratio", moment.latency_ratio, config.latency_jump, above=True),
    )
    idle = _all(
        Clause(*link, config.link_busy_min, above=True),
        _clause(moment, figures.busy, config.link_idle_max, above=False),
        _clause(moment, figures.memory, config.link_idle_max, above=False),
        by_time=figures.compute_by_time,
    )
    return _any(full, idle)


def _host(moment: Moment, config: BottleneckConfig, figures: Figures) -> Answer:
    """Kernels have gaps though there are requests, and something of the host is at its limit."""
    has_work = None if moment.load is None else moment.load.has_work
    needed = _all(
        _clause(moment, figures.gaps, config.gap_util_max, above=False),
        Clause("requests", None if has_work is None else float(has_work), 0.5, above=True),
    )
    asked = [
        ("cpu_ratio", config.core_min),
        ("throttled_ratio", config.throttled_min),
        ("wait_max_ratio", config.pressure_min),
        ("pressure_cpu_ratio", config.pressure_min),
        ("pressure_memory_ratio", config.pressure_min),
        ("pressure_io_ratio", config.pressure_min),
    ]
    if moment.sample.basis == "gpu":  # on a processor its busy threads are the work itself
        asked.insert(0, ("thread_max_ratio", config.thread_min))
    host = moment.host
    limits = [
        _all(Clause(name, None if host is None else getattr(host, name), threshold, above=True))
        for name, threshold in asked
    ]
    known = [limit for limit in limits if limit.held is not None]
    return _both(needed, _any(*(known or limits)))


_RULES: dict[Dimension, Callable[[Moment, BottleneckConfig, Figures], Answer]] = {
    "compute": _compute,
    "memory": _memory,
    "interconnect": _interconnect,
    "host": _host,
}


def _clause(
    moment: Moment, figure: str, threshold: float, *, above: bool, guard: bool = False
) -> Clause:
    return Clause(figure, getattr(moment.sample, figure), threshold, above, guard)


def _all(*clauses: Clause, by_time: bool = False) -> Answer:
    held = _conjunction([c.met for c in clauses if not (c.guard and c.met is None)])
    return Answer(held, clauses, clauses if held else (), by_time)


def _both(first: Answer, second: Answer) -> Answer:
    held = _conjunction([first.held, second.held])
    return Answer(
        held,
        (*first.clauses, *second.clauses),
        (*first.decisive, *second.decisive) if held else (),
        first.by_time or second.by_time,
    )


def _any(*answers: Answer) -> Answer:
    held = [answer for answer in answers if answer.held]
    clauses = tuple(dict.fromkeys(clause for answer in answers for clause in answer.clauses))
    if held:
        decisive = dict.fromkeys(clause for answer in held for clause in answer.decisive)
        return Answer(True, clauses, tuple(decisive), all(answer.by_time for answer in held))
    unknown = any(answer.held is None for answer in answers)
    return Answer(None if unknown else False, clauses, (), any(a.by_time for a in answers))


def _conjunction(answers: Sequence[bool | None]) -> bool | None:
    if any(answer is False for answer in answers):
        return False
    return None if any(answer is None for answer in answers) else True
