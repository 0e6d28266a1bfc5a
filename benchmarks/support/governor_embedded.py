"""The embedded engine at twice its capacity: taken alone, governed, and under static limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

from benchmarks.support.calls import Call, Mix, poisson_times
from benchmarks.support.embedded_upstream import EmbeddedUpstream
from benchmarks.support.goodput import Arm, Targets, bootstrap_ratio, light_targets
from benchmarks.support.governed import GovernedStack
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.governor_policies import show_rows
from benchmarks.support.load_client import Loop, run_loops, run_schedule
from benchmarks.support.machine import pinned
from benchmarks.support.statistics import spread
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["measure_embedded"]

MODEL = "smollm2"
PROMPT_WORDS, OUTPUT_TOKENS = (12, 48), (6, 18)
SLOTS, WEIGHTS = 8, "q4_0"
SATURATION = 2 * SLOTS
LIMITS = (1, 2, 4)
OVERLOAD, TARGET_FACTOR = 2.0, 3.0
WARM_S = 20.0
COMPLETED_MIN = 300
ALONE, GOVERNED = "engine alone", "governor"
LAG_MAX_S = 0.025


def measure_embedded(around: Surroundings) -> Part:
    """Light load, saturation, overload, in this order; the load client shares the gateway's core.

    The engine that is taken alone and those behind the gateways are the same program, each with one
    thread on the other core; one at a time has anything to do.
    """
    part = Part()
    with pinned(GATEWAY_CORE), ExitStack() as up:
        alone = up.enter_context(
            EmbeddedUpstream(
                around.new_directory("alone"), core=LOAD_CORE, slots=SLOTS, weights=WEIGHTS
            )
        )
        bench = _Bench(around, alone, part)
        targets = bench.light()
        capacity_per_s = bench.saturation()
        bench.overload(targets, capacity_per_s)
    return part


class _Bench:
    def __init__(self, around: Surroundings, alone: EmbeddedUpstream, part: Part) -> None:
        self._around, self._alone, self._part = around, alone, part
        self._seed = 60

    def _mix(self, key: str | None) -> Mix:
        return Mix(
            model=MODEL,
            prompt_tokens=PROMPT_WORDS,
            output_tokens=OUTPUT_TOKENS,
            words=True,
            key=key,
        )

    def _gateway(self, name: str, sections: dict[str, Any]) -> GovernedStack:
        embedded = {"slots": SLOTS, "threads": 1, "weights": WEIGHTS}
        return self._around.gateway(
            self._around.new_directory(name),
            sections={**sections, "embedded": embedded},
            engine_core=LOAD_CORE,
        )

    def light(self) -> Targets:
        """Targets from requests that are alone, one after the other."""
        count = 15 if self._around.quick else 60
        for warming in (True, False):
            calls, _ = self._closed(self._alone.port, self._alone.key, count, 1)
            if not warming:
                break
        targets = light_targets(calls, TARGET_FACTOR)
        self._part.figures |= {
            "embedded_ttft_target_s": round(targets.ttft_s, 4),
            "embedded_itl_target_s": round(targets.itl_s, 4),
            "embedded_itl_mean_target_s": round(targets.itl_mean_s, 4),
        }
        self._around.output.say(
            f"embedded: targets {targets.ttft_s:.3f} s and {targets.itl_s * 1e3:.0f} ms"
        )
        return targets

    def _closed(
        self, port: int, key: str | None, count: int, connections: int
    ) -> tuple[list[Call], float]:
        """So many requests from so many clients; the calls, and the seconds that it took."""
        self._seed += 1
        return self._rerun(port, key, count, connections, self._seed)

    def _rerun(
        self, port: int, key: str | None, count: int, connections: int, seed: int
    ) -> tuple[list[Call], float]:
        some: Iterator[Call] = islice(self._mix(key).endless(seed), count)
        calls = run_loops(
            port,
            [Loop(some, connections)],
            duration_s=600.0,
            keep_connections=key is None,
        )
        self._fail(f"{connections} clients", calls)
        return calls, max(call.end_s or 0.0 for call in calls)

    def _fail(self, name: str, calls: Sequence[Call]) -> None:
        arm = Arm(name)
        arm.add(calls, 1.0)
        self._part.failures += arm.errors()[:1]

    def saturation(self) -> float:
        """The same requests without targets, alone and governed in turns; the capacity alone."""
        quick = self._around.quick
        rounds, count = (1, 30) if quick else (3, 80)
        ratios, rates, tokens_per_s = [], [], []
        with self._gateway("saturation", {}) as stack:
            self._closed(stack.chat_port, None, SATURATION, SATURATION)
            for number in range(rounds):
                seed = 100 + number
                took_s: dict[str, float] = {}
                order: list[tuple[str, int, str | None]] = [
                    (ALONE, self._alone.port, self._alone.key),
                    (GOVERNED, stack.chat_port, None),
                ]
                for name, port, key in order[:: 1 if number % 2 else -1]:
                    calls, took_s[name] = self._rerun(port, key, count, SATURATION, seed)
                    if name == ALONE:
                        rates.append(len(calls) / took_s[name])
                        tokens = sum(call.prompt_tokens + call.output_tokens for call in calls)
                        tokens_per_s.append(tokens / took_s[name])
                ratios.append(took_s[ALONE] / took_s[GOVERNED])
                self._around.output.say(f"embedded: throughput ratio {ratios[-1]:.3f}")
        capacity_per_s = spread(rates).median
        self._part.figures |= {
            "throughput_ratio": round(spread(ratios).median, 4),
            "throughput_ratio_rounds": spread(ratios).rounded(4),
            "embedded_capacity_per_s": round(capacity_per_s, 3),
            "embedded_capacity_tokens_per_s": round(spread(tokens_per_s).median, 1),
        }
        self._part.bars += (Bar("throughput_ratio", 0.97),)
        return capacity_per_s

    def overload(self, targets: Targets, capacity_per_s: float) -> None:
        """All arms at twice the capacity, in turns; each gets the same requests in a round."""
        quick = self._around.quick
        rounds = 1 if quick else 2
        # A fifth more than an arm should need that is as fast as the engine alone.
        seconds = 12.0 if quick else 1.2 * COMPLETED_MIN / capacity_per_s / rounds
        slo = {"ttft_s": targets.ttft_s, "itl_s": targets.itl_s}
        governors: dict[str, dict[str, Any]] = {GOVERNED: {}}
        for limit in LIMITS:
            governors[f"static {limit}"] = {"policy": "static", "static": {"limit": limit}}
        arms = {name: Arm(name) for name in (ALONE, *governors)}
        with ExitStack() as up:
            ports: dict[str, tuple[int, str | None]] = {ALONE: (self._alone.port, self._alone.key)}
            for name, governor in governors.items():
                stack = up.enter_context(self._gateway(name, {"governor": governor, "slo": slo}))
                ports[name] = stack.chat_port, None
            for number in range(-1, rounds):
                times = poisson_times(
                    70 + number,
                    OVERLOAD * capacity_per_s,
                    seconds if number >= 0 else min(WARM_S, seconds),
                )
                for name in arms if number % 2 else reversed(arms):
                    if number < 0 and name == ALONE:
                        continue  # nothing in it learns
                    calls = self._offer(ports[name], times, targets, seed=80 + number)
                    if number >= 0:
                        arms[name].add(calls, seconds)
                        goodput = sum(map(targets.met, calls)) / seconds
                        self._around.output.say(f"embedded: {name}: {goodput:.2f}/s met both")
        self._conclude(arms, targets)

    def _offer(
        self, where: tuple[int, str | None], times: Sequence[float], targets: Targets, *, seed: int
    ) -> list[Call]:
        """One arm's round; afterwards the engine is idle."""
        port, key = where
        calls = self._mix(key).calls(seed, times)
        # What has no first token by then has missed its target.
        drain_s = targets.ttft_s + OUTPUT_TOKENS[1] * targets.itl_s
        run_schedule(port, calls, drain_s=drain_s, keep_connections=key is None)
        if key is not None:
            self._alone.wait_idle()
        return calls

    def _conclude(self, arms: dict[str, Arm], targets: Targets) -> None:
        part = self._part
        for arm in arms.values():
            self._fail(arm.name, arm.calls)
            part.note_lag(arm.name, arm.lag_s(), LAG_MAX_S)
            if not self._around.quick and arm.completed < COMPLETED_MIN:
                part.invalid.append(f"{arm.name}: only {arm.completed} requests were completed")
        rows = {name: arm.figures(targets) for name, arm in arms.items()}
        show_rows(self._around, "Embedded engine at twice its capacity", rows)
        best = max((f"static {n}" for n in LIMITS), key=lambda n: arms[n].goodput_per_s(targets))
        ours = arms[GOVERNED]
        ratio = bootstrap_ratio(ours, arms[ALONE], targets)
        versus_static = bootstrap_ratio(ours, arms[best], targets)
        by_mean = {
            name: round(arm.goodput_per_s(targets, by_mean=True), 4) for name, arm in arms.items()
        }
        part.figures |= {
            "goodput_ratio": round(ratio.value, 3),
            "goodput_ratio_interval": ratio.rounded(),
            "goodput_vs_best_static": round(versus_static.value, 3),
            "goodput_vs_best_static_interval": versus_static.rounded(),
            "embedded_best_static": best,
            "embedded_goodput_by_mean_itl_per_s": by_mean,
            "embedded": rows,
        }
        part.bars += (Bar("goodput_ratio", 1.5), Bar("goodput_vs_best_static", 0.9))
