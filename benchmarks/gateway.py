"""The gateway against others on one core: throughput, streams and added latency, in one run.

`make bench-gateway`, or `python -m benchmarks.gateway [--quick] [--json]`. See
docs/reference/benchmarks.md for what is measured and how. Exit code: 0 all bars met, 1 a bar
missed or a request lost, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.competitors import (
    ROUTER_DEFAULT_POLICY,
    ROUTER_POLICIES,
    start_litellm,
    start_vllm_router,
)
from benchmarks.support.engine_upstream import EngineUpstream
from benchmarks.support.gateway_figures import BARS, figures, show
from benchmarks.support.gateway_runs import Runs
from benchmarks.support.judges import ExactBody
from benchmarks.support.machine import pinned, raise_file_limit
from benchmarks.support.mileage import MileageStack
from benchmarks.support.nginx import NginxUpstream, start_nginx_proxy
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.payloads import (
    STREAM_MODEL,
    Events,
    chat_events,
    chat_request,
    http_request,
)
from benchmarks.support.probe import Probe
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.rounds import EVENTS, latency_round, paced_round, stream_round, whole_round
from benchmarks.support.stacks import Stack, Upstreams
from benchmarks.support.verdict import NO_VERDICT, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["main"]

RATE_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds and number of rounds. LiteLLM needs short ones only: its figure hardly varies."""

    rounds: int = 3
    latency_rounds: int = 4
    paced_rounds: int = 2
    policy_s: float = 2
    warm_s: float = 1
    whole_s: float = 8
    stream_s: float = 6
    short_s: float = 3
    latency_s: float = 4
    paced_s: float = 5


QUICK = Plan(
    rounds=1,
    latency_rounds=1,
    paced_rounds=1,
    policy_s=1,
    whole_s=3,
    stream_s=2,
    latency_s=2,
    paced_s=3,
)


class Bench:
    """One run: stacks side by side on the gateway's core, measured in turns."""

    def __init__(self, plan: Plan, output: Output, directory: Path) -> None:
        self._plan, self._output, self._directory = plan, output, directory
        self._whole_events = chat_events(EVENTS, usage=True)
        self._hidden_usage = chat_events(EVENTS, usage=False)
        self.runs = Runs()

    def run(self) -> None:
        """Measure everything into `runs`; raises NotReadyError where a program is missing."""
        core = LOAD_CORE
        with (
            NginxUpstream(self._directory, self._whole_events, core=core) as nginx,
            ExitStack() as up,
        ):
            upstreams = Upstreams(nginx.chat_port, nginx.stream_port)
            direct = Stack(
                "direct", nginx.version, chat_port=nginx.chat_port, stream_port=nginx.stream_port
            )
            best = self._best_policy(upstreams)
            policies = dict.fromkeys((best, ROUTER_DEFAULT_POLICY))
            mileage = up.enter_context(self._mileage(upstreams, "first"))
            routers = [up.enter_context(self._router(upstreams, p)) for p in policies]
            litellm = up.enter_context(start_litellm(upstreams, self._directory, core=GATEWAY_CORE))
            bare = up.enter_context(
                start_nginx_proxy(upstreams, self._directory / "bare", core=GATEWAY_CORE)
            )
            self.runs.note_stacks(best, direct, mileage, *routers, litellm)
            self._check_usage(mileage)
            self._whole([direct, mileage, *routers, bare, litellm])
            self._streams([direct, mileage, *routers, bare, litellm])
            self._latency([direct, mileage, routers[0]])
            self._check_ledger(mileage)
        self._paced(best)

    def _mileage(self, upstreams: Upstreams, name: str) -> MileageStack:
        return MileageStack(upstreams, self._directory / name, core=GATEWAY_CORE)

    def _router(self, upstreams: Upstreams, policy: str) -> Stack:
        stack = start_vllm_router(upstreams, self._directory, core=GATEWAY_CORE, policy=policy)
        stack.name = f"vllm-router {policy}"
        return stack

    def _best_policy(self, upstreams: Upstreams) -> str:
        """The policy of vllm-router that costs it least CPU per request: that one is raced."""
        costs, failures = {}, []
        for policy in ROUTER_POLICIES:
            with self._router(upstreams, policy) as router:
                whole_round(router, self._plan.warm_s, self._directory)
                measured = whole_round(router, self._plan.policy_s, self._directory)
                self._say("policy", 0, router, measured.per_s, measured.cpu_us)
                if measured.errors or not measured.completed:
                    failures.append(f"{router.name}: {measured.first_error}\n{router.log_tail()}")
                else:
                    costs[policy] = measured.cpu_us
        if failures:
            raise NotReadyError("\n".join(failures))
        self.runs.policies = costs
        return min(costs, key=costs.__getitem__)

    def _check_usage(self, mileage: MileageStack) -> None:
        """Usage is shown to a client that asks for it, and hidden from one that does not."""
        for asked, expected in ((True, self._whole_events), (False, self._hidden_usage)):
            body = chat_request(STREAM_MODEL, stream=True, usage=asked)
            probe = Probe(
                mileage.stream_port,
                http_request(body, key=mileage.key, close=True),
                ExactBody(expected.body),
            )
            probe()
            self.runs.sent += probe.sent
            self.runs.streamed += probe.sent
            if probe.first_error is not None:
                self.runs.failures.append(f"usage asked: {asked}: {probe.first_error}")

    def _whole(self, stacks: Sequence[Stack]) -> None:
        for number in range(-1, self._plan.rounds):
            for stack in stacks:
                seconds = self._plan.whole_s if number >= 0 else self._plan.warm_s
                seconds = self._shorter(stack, seconds)
                measured = whole_round(stack, seconds, self._directory)
                self.runs.add_whole(stack, measured, counted=number >= 0)
                self._say("whole", number, stack, measured.per_s, measured.cpu_us)

    def _streams(self, stacks: Sequence[Stack]) -> None:
        for number in range(-1, self._plan.rounds):
            for stack in stacks:
                seconds = self._plan.stream_s if number >= 0 else self._plan.warm_s
                if stack.name != "litellm":  # its streams take seconds each
                    seconds = self._shorter(stack, seconds)
                measured = stream_round(stack, seconds, self._expected(stack))
                self.runs.add_streams(stack, measured, counted=number >= 0)
                self._say("streams", number, stack, measured.per_s, measured.cpu_us)

    def _shorter(self, stack: Stack, seconds: float) -> float:
        """The raced pair gets the whole time, the others enough to give a figure."""
        raced = stack.name in ("mileage", self.runs.router)
        return seconds if raced else min(seconds, self._plan.short_s)

    def _expected(self, stack: Stack) -> Events:
        return self._hidden_usage if isinstance(stack, MileageStack) else self._whole_events

    def _latency(self, stacks: Sequence[Stack]) -> None:
        for number in range(-1, self._plan.latency_rounds):
            for stack in stacks:
                seconds = self._plan.latency_s if number >= 0 else 1.0
                measured = latency_round(stack, seconds, RATE_PER_S)
                self.runs.add_latency(stack, measured, counted=number >= 0)
                self._output.say(
                    f"latency round {number + 1}: {stack.name}: "
                    f"p50 {measured.p50_ms or 0:.3f} ms, p99 {measured.p99_ms or 0:.3f} ms"
                )

    def _paced(self, policy: str) -> None:
        """Fresh stacks in front of an engine that writes one event at a time."""
        with EngineUpstream(self._directory, core=LOAD_CORE) as engine, ExitStack() as up:
            upstreams = Upstreams(engine.port, engine.port)
            direct = Stack("direct", "-", chat_port=engine.port, stream_port=engine.port)
            mileage = up.enter_context(self._mileage(upstreams, "second"))
            router = up.enter_context(self._router(upstreams, policy))
            for number in range(self._plan.paced_rounds):
                for stack in (direct, mileage, router):
                    measured = paced_round(stack, self._plan.paced_s)
                    self.runs.add_paced(stack, measured)
                    self._say("paced", number, stack, measured.events_per_s, measured.cpu_us)

    def _check_ledger(self, mileage: MileageStack) -> None:
        """The ledger has one row for each request; the metrics counted as many."""
        self._output.say("waiting for the ledger's database to catch up")
        totals = mileage.settled_ledger(self.runs.sent)
        self.runs.note_ledger(totals, mileage.counted_requests())

    def _say(self, what: str, number: int, stack: Stack, per_s: float, cpu_us: float) -> None:
        name = f"round {number + 1}" if number >= 0 else "warm-up"
        self._output.say(f"{what} {name}: {stack.name}: {per_s:,.0f}/s, {cpu_us:.1f} us CPU each")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(16_384)
    if not {GATEWAY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        return output.finish({}, Verdict(NO_VERDICT, ("needs the cores 0 and 1",)))
    with scratch_directory() as directory, pinned(LOAD_CORE):
        bench = Bench(QUICK if arguments.quick else Plan(), output, directory)
        try:
            bench.run()
        except NotReadyError as error:
            return output.finish({}, Verdict(NO_VERDICT, (str(error),)))
    runs = bench.runs
    show(runs, output)
    result = figures(runs)
    judged = verdict(
        result,
        BARS,
        failures=runs.failures,
        invalid=runs.invalid(),
        doubts=runs.doubts(),
    )
    return output.finish(result, judged)


if __name__ == "__main__":
    sys.exit(main())
