"""What metering costs a request, where the engine is so fast that it can be seen."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.closed_loop import run_closed_loop
from benchmarks.support.cpu_clock import tree_cpu_s
from benchmarks.support.judges import ExactBody
from benchmarks.support.machine import pinned
from benchmarks.support.mileage import MileageStack
from benchmarks.support.nginx import NginxUpstream
from benchmarks.support.output import Output
from benchmarks.support.payloads import CHAT_MODEL, chat_answer, chat_request, http_request
from benchmarks.support.rounds import CONNECTIONS
from benchmarks.support.stacks import Upstreams
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["FastPair", "FastRounds"]

_ROUND_MAX_S = 60.0


@dataclass(slots=True)
class FastRounds:
    """CPU seconds of the gateway per 1,000 requests, with and without metering, by round."""

    with_it: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    sent: int = 0
    """Requests of each of the two, warm-up included."""
    per_s: list[float] = field(default_factory=list)

    @property
    def differences(self) -> list[float]:
        """Of each pair of rounds."""
        return [a - b for a, b in zip(self.with_it, self.without, strict=True)]


class FastPair:
    """Two gateways on one core, alike but for metering; both live equally long, so what either
    does by the second is in both alike, and the rest is what metering takes."""

    def __init__(self, directory: Path, nginx: NginxUpstream, parts: ExitStack) -> None:
        upstreams = Upstreams(nginx.chat_port, nginx.stream_port)
        self._gateways = {
            metering: parts.enter_context(
                MileageStack(
                    upstreams,
                    directory / f"metering-{metering}".lower(),
                    core=GATEWAY_CORE,
                    metering=metering,
                )
            )
            for metering in (True, False)
        }
        self.rounds = FastRounds()
        self._before = self._cpu_s()

    def load(self, rounds: int, requests: int, output: Output) -> None:
        """So many requests to either, in turn; a warm-up first, which counts in the whole."""
        self._before = self._cpu_s()
        for number in range(-1, rounds):
            order = (True, False) if number % 2 else (False, True)
            for metering in order:
                cpu_s, per_s = self._round(metering, requests)
                if number >= 0:
                    found = self.rounds.with_it if metering else self.rounds.without
                    found.append(cpu_s / requests * 1000)
                    self.rounds.per_s.append(per_s)
                name = "warm-up" if number < 0 else f"round {number + 1}"
                output.say(
                    f"fast engine, {name}, {'with' if metering else 'without'} metering: "
                    f"{cpu_s / requests * 1e6:.1f} us CPU each, {per_s:,.0f}/s"
                )
            self.rounds.sent += requests

    def _round(self, metering: bool, requests: int) -> tuple[float, float]:
        gateway = self._gateways[metering]
        expected = chat_answer()
        before_s = tree_cpu_s(gateway.service.pid)
        with pinned(LOAD_CORE):
            result = run_closed_loop(
                gateway.chat_port,
                http_request(chat_request(CHAT_MODEL), key=gateway.key),
                lambda: ExactBody(expected),
                connections=CONNECTIONS,
                window_s=_ROUND_MAX_S,
                requests=requests,
            )
        if result.errors or result.completed != requests:
            self.rounds.failures.append(
                f"{result.completed} of {requests} answers: {result.first_error}"
            )
        return tree_cpu_s(gateway.service.pid) - before_s, result.answers_per_s

    def difference_s(self) -> float:
        """CPU seconds that metering took since `load` began, for all requests of one gateway."""
        now = self._cpu_s()
        spent = {metering: now[metering] - self._before[metering] for metering in now}
        return spent[True] - spent[False]

    def check(self) -> int:
        """Rows of the one with a ledger, which must be all requests; the other has none."""
        metered, bare = self._gateways[True], self._gateways[False]
        totals = metered.settled_ledger(self.rounds.sent)
        if totals.total != self.rounds.sent:
            self.rounds.failures.append(f"{totals.total} rows for {self.rounds.sent} requests")
        if bare.database.exists():
            self.rounds.failures.append("a gateway without metering has a ledger")
        return totals.total

    def wait_until_booked(self, timeout_s: float = 90.0) -> None:
        """Wait until all GPU time is shared out; a failure where that takes too long."""
        metered = self._gateways[True]
        deadline_s = time.monotonic() + timeout_s
        while metered.ledger().total < self.rounds.sent or metered.unbooked():
            if time.monotonic() > deadline_s:
                self.rounds.failures.append(f"{metered.unbooked()} requests are not booked")
                return
            time.sleep(1.0)

    def _cpu_s(self) -> dict[bool, float]:
        return {m: tree_cpu_s(gateway.service.pid) for m, gateway in self._gateways.items()}
