"""Dispatcher: sends calls to their targets, and keeps a record of each that is over."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence

from mileage.loadgen.call import Call
from mileage.loadgen.connection import LoadConnection
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.request_head import RequestHeads, UnsendableError
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.loadgen.target_load import TargetLoad
from mileage.measure.call_record import CallOutcome, CallRecord, Phase
from mileage.wire.pool import UpstreamPool

__all__ = ["Dispatcher"]

_RETRIED: frozenset[CallOutcome] = frozenset(("connect", "broken", "rejected", "server_error"))
_RETRY_PAUSE_MAX_S = 10.0


class Dispatcher:
    """Sends calls; `over` gets the record of each, once, from the event loop."""

    def __init__(
        self,
        targets: Sequence[Target],
        options: RunOptions,
        *,
        connections_max: int,
        zero_s: float,
        over: Callable[[CallRecord], None],
    ) -> None:
        self._options, self._zero_s, self._over = options, zero_s, over
        self._in_flight: set[Call] = set()
        self._load = TargetLoad(len(targets))
        self._pools = [self._pool(target, connections_max) for target in targets]
        self._heads = [
            RequestHeads(target, prefix=pool.prefix, authority=pool.authority)
            for target, pool in zip(targets, self._pools, strict=True)
        ]

    @property
    def idle(self) -> bool:
        """No call is on its way."""
        return not self._in_flight

    def heard_s(self) -> float | None:
        """When a byte came last for the calls that are on their way, in seconds since the run
        began; None where none has come for any of them."""
        times_s = (call.heard_s for call in self._in_flight)
        return max((heard_s for heard_s in times_s if heard_s is not None), default=None)

    def start(self) -> None:
        """Begin to watch deadlines; needs a running loop."""
        for pool in self._pools:
            pool.start()

    def stop(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            pool.stop()

    def send(self, planned: PlannedCall, *, scheduled_s: float, phase: Phase) -> None:
        """Send a call now that was due at `scheduled_s`."""
        now_s = time.monotonic()
        call = Call(
            planned,
            scheduled_s=scheduled_s,
            taken_s=now_s - self._zero_s,
            phase=phase,
            zero_s=self._zero_s,
            over=self._call_over,
        )
        self._in_flight.add(call)
        self._try(call, now_s)

    def drop(self, planned: PlannedCall, *, scheduled_s: float, phase: Phase, error: str) -> None:
        """Record a call that was due and will never be sent."""
        call = Call(
            planned,
            scheduled_s=scheduled_s,
            taken_s=None,
            phase=phase,
            zero_s=self._zero_s,
            over=self._call_over,
        )
        call.give_up("unsent", error)

    def give_up(self, outcome: CallOutcome, error: str) -> None:
        """Leave all calls that are on their way; those that never left are `unsent`."""
        for call in tuple(self._in_flight):
            call.give_up("unsent" if call.sent_s is None else outcome, error)

    def _try(self, call: Call, now_s: float) -> None:
        planned = call.planned
        call.attempts += 1
        try:
            target = self._load.least() if planned.target is None else planned.target
            if not 0 <= target < len(self._pools):
                raise UnsendableError(f"there is no target {target}")
            request = self._heads[target].request(planned)
        except UnsendableError as error:
            asyncio.get_running_loop().call_soon(call.give_up, "unsent", str(error))
            return
        call.target = target
        self._load.begin(target)
        self._pools[target].send(request, call, now_s)

    def _call_over(self, call: Call) -> None:
        if call.target is not None:
            self._load.end(call.target)
        if (
            call.attempts <= self._options.retries
            and call.outcome in _RETRIED
            and not call.tokens_came
        ):
            pause_s = self._options.retry_pause_s * 2 ** min(call.attempts - 1, 16)
            call.forget()
            loop = asyncio.get_running_loop()
            loop.call_later(min(pause_s, _RETRY_PAUSE_MAX_S), self._try_again, call)
            return
        self._in_flight.discard(call)
        self._over(call.record())

    def _try_again(self, call: Call) -> None:
        if call.outcome is None:  # else it was given up meanwhile
            self._try(call, time.monotonic())

    def _pool(self, target: Target, connections_max: int) -> UpstreamPool:
        tls: ssl.SSLContext | None = None
        if not target.verify:
            tls = ssl.create_default_context()
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        return UpstreamPool(
            target.url,
            connections_max=connections_max,
            connect_timeout_s=self._options.connect_timeout_s,
            response_timeout_s=self._options.response_timeout_s,
            tls=tls,
            connection=LoadConnection,
        )
