"""Driver: the asyncio shell round the controller: asks it, and does what it says."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from mileage.control.controller import Controller
from mileage.core.actions import Dispatch, Reject, WakeAt
from mileage.core.events import Arrived, Event, Woke
from mileage.core.ports import RequestLog
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.target import Target

if TYPE_CHECKING:
    from mileage.gateway.exchange import Exchange

__all__ = ["Driver"]

_log = logging.getLogger(__name__)


class Driver:
    """Owns the exchanges in flight of one worker."""

    def __init__(
        self,
        controller: Controller,
        targets: Iterable[Target],
        request_log: RequestLog,
        metrics: GatewayMetrics,
        *,
        on_ledger_failure: Literal["open", "closed"],
    ) -> None:
        self.controller = controller
        self.targets = {target.name: target for target in targets}
        self.metrics = metrics
        self.exchanges: dict[int, Exchange] = {}
        self.ledger_ok = True
        self._request_log = request_log
        self._fail_closed = on_ledger_failure == "closed"
        self._records = self._dropped = 0
        self._wake: asyncio.TimerHandle | None = None
        self._idle: asyncio.Event | None = None

    def start(self) -> None:
        """Begin to watch the connections to the engines; needs a running loop."""
        for target in self.targets.values():
            target.pool.start()

    def stop(self) -> None:
        """Drop all connections to the engines."""
        if self._wake is not None:
            self._wake.cancel()
        for target in self.targets.values():
            target.pool.stop()

    async def wait_idle(self) -> None:
        """Wait until no request is in flight."""
        self._idle = asyncio.Event()
        if self.exchanges:
            await self._idle.wait()

    def arrived(self, exchange: Exchange) -> None:
        """Take a request on."""
        self.exchanges[exchange.request.id] = exchange
        self.handle(Arrived(exchange.request), exchange.request.arrived_s)

    def handle(self, event: Event, now_s: float) -> None:
        """Tell the controller, and perform its actions in order."""
        for action in self.controller.handle(event, now_s):
            if type(action) is Dispatch:
                exchange = self.exchanges.get(action.request_id)
                if exchange is not None:
                    exchange.dispatch(self.targets[action.replica], now_s)
            elif type(action) is Reject:
                exchange = self.exchanges.get(action.request_id)
                if exchange is not None:
                    exchange.reject(action.reason, action.retry_after_s, now_s)
            elif type(action) is WakeAt:
                self._wake_at(action.at_s)

    def served_models(self) -> list[str]:
        """Models of the replicas that are not down, in order of first appearance."""
        states = self.controller.replica_states()
        return list(dict.fromkeys(m for s in states if s.state != "down" for m in s.models))

    def record_intent(self, request: Request, arrived_at_utc_ns: int) -> bool:
        """Record that a request is about to be dispatched; False where it may not be."""
        written = self._request_log.intent(request, arrived_at_utc_ns)
        self._count(written)
        return written or not self._fail_closed

    def finish(self, timeline: RequestTimeline) -> None:
        """Record and count a request that has ended, and forget it."""
        self.exchanges.pop(timeline.id, None)
        self._count(self._request_log.finish(timeline))
        if self._idle is not None and not self.exchanges:
            self._idle.set()
        known = timeline.reason != "model_not_found"
        self.metrics.finished(timeline, timeline.model if known else "unknown")

    def snapshot_ledger(self) -> None:
        """Bring the counters of ledger records up to date."""
        self.metrics.ledger_records.values[()] = self._records
        self.metrics.ledger_dropped.values[()] = self._dropped

    def _count(self, written: bool) -> None:
        if written:
            self._records += 1
        else:
            self._dropped += 1
        if written is not self.ledger_ok:
            self.ledger_ok = written
            if written:
                _log.warning("the request log can be written again")
            else:
                _log.error("the request log cannot be written: requests go unrecorded")

    def _wake_at(self, at_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        loop = asyncio.get_running_loop()
        delay_s = max(0.0, at_s - time.monotonic())
        self._wake = loop.call_later(delay_s, self._woke)

    def _woke(self) -> None:
        self._wake = None
        self.handle(Woke(), time.monotonic())
