"""Metering's cost: CPU time of the gateway with and without it, beside that of the engine.

`make bench-metering`, or `python -m benchmarks.metering [--quick] [--json]`. See
docs/reference/benchmarks.md for what is measured and how. Exit code: 0 all bars met, 1 a bar
missed or a record lost, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.support.embedded_gateway import EmbeddedGateway, Used, short_answers
from benchmarks.support.machine import describe
from benchmarks.support.metering_fast import FastPair
from benchmarks.support.nginx import NginxUpstream
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.payloads import chat_events
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.rounds import EVENTS
from benchmarks.support.statistics import spread
from benchmarks.support.verdict import NO_VERDICT, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["BARS", "figures", "main"]

BARS = (
    Bar("metering_ratio", 0.01, at_least=False),
    Bar("metering_ratio_of_rounds", 0.01, at_least=False),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds of either gateway, requests of each, and seconds."""

    fast_rounds: int = 3
    fast_requests: int = 40_000
    engine_rounds: int = 5
    engine_requests: int = 44


QUICK = Plan(fast_rounds=1, fast_requests=2000, engine_rounds=1, engine_requests=8)


class EnginePair:
    """Two gateways with an engine each, alike but for metering; one of them works at a time."""

    def __init__(self, directory: Path, parts: ExitStack) -> None:
        self._gateways = {
            metering: parts.enter_context(
                EmbeddedGateway(directory / f"engine-{metering}".lower(), metering=metering)
            )
            for metering in (True, False)
        }
        self.used: dict[bool, list[Used]] = {True: [], False: []}
        self.idle: dict[bool, Used] = {}
        self._marks = {m: gateway.mark() for m, gateway in self._gateways.items()}

    def rest(self) -> None:
        """From here on nobody asks either of them anything, until `rested`."""
        self._marks = {m: gateway.mark() for m, gateway in self._gateways.items()}

    def rested(self) -> None:
        """Note what they have used since `rest`."""
        self.idle = {m: gateway.since(*self._marks[m]) for m, gateway in self._gateways.items()}

    def load(self, rounds: int, requests: int, output: Output) -> None:
        """The same requests to either, in turn; other ones in each round."""
        for number in range(-1, rounds):
            for metering in (True, False) if number % 2 else (False, True):
                used = self._gateways[metering].answer(short_answers(number + 1, requests))
                if number >= 0:
                    self.used[metering].append(used)
                name = "warm-up" if number < 0 else f"round {number + 1}"
                gateway_s, engine_s = used.per_1000(used.gateway_s), used.per_1000(used.engine_s)
                output.say(
                    f"embedded engine, {name}, {'with' if metering else 'without'} metering: "
                    f"gateway {gateway_s:.2f} CPU s per 1,000 requests, engine {engine_s:.0f}"
                )

    @property
    def failures(self) -> list[str]:
        """What went wrong in any round."""
        return [used.error for rounds in self.used.values() for used in rounds if used.error]


def figures(
    with_it: Sequence[Used],
    without: Sequence[Used],
    *,
    idle: tuple[Used, Used],
    cpu_s_per_request: float,
) -> dict[str, object]:
    """Of pairs of rounds in front of the engine, of both gateways `idle` (with metering, without),
    and of what it takes for a request by itself.

    Metering takes CPU time by the request and by the second: the sum of both, for as long as the
    engine needs for 1,000 answers, is less noisy than the difference of the rounds.
    """
    engine = spread(u.per_1000(u.engine_s) for u in (*with_it, *without))
    rounds = spread(
        a.per_1000(a.gateway_s) - b.per_1000(b.gateway_s)
        for a, b in zip(with_it, without, strict=True)
    )
    wall_s = median(used.per_1000(used.wall_s) for used in with_it)
    idle_with, idle_without = (used.gateway_s / used.wall_s for used in idle)
    by_second = idle_with - idle_without
    metering_s = cpu_s_per_request * 1000 + by_second * wall_s
    gateway = {
        name: spread(u.per_1000(u.gateway_s) for u in used).rounded(3)
        for name, used in (("with", with_it), ("without", without))
    }
    return {
        "metering_ratio": round(metering_s / engine.median, 5),
        "metering_ratio_of_rounds": round(rounds.median / engine.median, 5),
        "metering_cpu_s_per_1000": round(metering_s, 4),
        "metering_cpu_s_per_1000_of_rounds": rounds.rounded(4),
        "metering_core_share_idle": round(by_second, 5),
        "engine_cpu_s_per_1000": engine.rounded(1),
        "engine_answers_per_s": round(1000 / wall_s, 2),
        "gateway_cpu_s_per_1000_with": gateway["with"],
        "gateway_cpu_s_per_1000_without": gateway["without"],
        "gateway_core_share_idle_with": round(idle_with, 4),
        "gateway_core_share_idle_without": round(idle_without, 4),
    }


def run(plan: Plan, directory: Path, output: Output) -> tuple[dict[str, object], list[str]]:
    """Figures and failures; raises NotReadyError where a program is missing."""
    events = chat_events(EVENTS, usage=True)
    with NginxUpstream(directory, events, core=LOAD_CORE) as nginx, ExitStack() as parts:
        fast = FastPair(directory, nginx, parts)
        real = EnginePair(directory, parts)
        fast.load(plan.fast_rounds, plan.fast_requests, output)
        output.say("waiting until GPU time is shared out to all of these")
        real.rest()
        fast.wait_until_booked()
        per_request_s = fast.difference_s() / fast.rounds.sent
        real.rested()
        rows = fast.check()
        real.load(plan.engine_rounds, plan.engine_requests, output)
    found = {
        **figures(
            real.used[True],
            real.used[False],
            idle=(real.idle[True], real.idle[False]),
            cpu_s_per_request=per_request_s,
        ),
        "fast_metering_cpu_s_per_1000": round(per_request_s * 1000, 5),
        "fast_metering_cpu_s_per_1000_of_rounds": spread(fast.rounds.differences).rounded(5),
        "fast_gateway_cpu_s_per_1000_with": spread(fast.rounds.with_it).rounded(4),
        "fast_gateway_cpu_s_per_1000_without": spread(fast.rounds.without).rounded(4),
        "fast_requests": fast.rounds.sent,
        "fast_rows": rows,
    }
    return found, [*fast.rounds.failures, *real.failures]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metering", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    if not {GATEWAY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        return output.finish({}, Verdict(NO_VERDICT, ("needs the cores 0 and 1",)))
    with scratch_directory() as directory:
        try:
            found, failures = run(QUICK if arguments.quick else Plan(), directory, output)
        except NotReadyError as error:
            return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    output.table("Figures", ("", "value"), list(found.items()))
    judged = verdict(found, BARS, failures=failures)
    return output.finish({**found, "machine": describe()}, judged)


if __name__ == "__main__":
    sys.exit(main())
