"""Driver: the asyncio shell round the controller: asks it, and does what it says."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from mileage.control.controller import Controller
from mileage.control.experiment import ArmSeen
from mileage.core.actions import AskBudget, Dispatch, Join, Load, Reject, ReturnBudget, WakeAt
from mileage.core.events import Arrived, Cancelled, Event, ReplicaUp, Woke
from mileage.core.ports import JournalSink, RequestLog
from mileage.core.replica import Adapter
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.gateway.config import GatewayConfig
from mileage.gateway.generation import Generation
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.refusals import Refusal, rejection
from mileage.gateway.target import Target
from mileage.policy.merging import MergingConfig

if TYPE_CHECKING:
    from mileage.gateway.exchange import Exchange

__all__ = ["Cut", "Driver", "Then"]

_log = logging.getLogger(__name__)

_ALONE_S = 0.000_25
"""A record that comes this long after the last is written at once: it would wait for company in
vain, and one turn of the loop is time that a client can measure."""

_ROUNDING_S = 0.001

Then: TypeAlias = Callable[[bool], None]
"""What is done when a record is written; told whether the request may go on."""
Cut: TypeAlias = Callable[[], None]


def _no_treasury(actions: list[AskBudget | ReturnBudget]) -> None:
    """Nobody grants budgets: who has one waits."""


def _no_loader(model: str) -> None:
    """Nobody loads models: who waits for one is refused in time."""


class Driver:
    """Owns the exchanges in flight of one worker. Without a `request_log` nothing is recorded."""

    def __init__(
        self,
        controller: Controller,
        targets: Iterable[Target],
        request_log: RequestLog | None,
        metrics: GatewayMetrics,
        *,
        on_ledger_failure: Literal["open", "closed"],
        merging: MergingConfig | None = None,
        journal: JournalSink | None = None,
    ) -> None:
        self.controller = controller
        self.targets = {target.name: target for target in targets}
        self._left: set[Target] = set()
        self.metrics = metrics
        self.merging = merging or MergingConfig()
        self.adapters: dict[str, Adapter] = {}
        """By the names of the models that they make."""
        self.adapter_uses: dict[str, int] = {}
        """Requests that came for each adapter that is loaded on demand, since the last report."""
        self.exchanges: dict[int, Exchange] = {}
        self.orphans: dict[int, Generation] = {}
        """Generations whose leader has left, by its id."""
        self.on_budgets: Callable[[list[AskBudget | ReturnBudget]], None] = _no_treasury
        """Tells the treasury what the controller asks and returns; set by the worker."""
        self.on_load: Callable[[str], None] = _no_loader
        """Has a model loaded that requests wait for; set by the worker."""
        self._for_treasury: list[AskBudget | ReturnBudget] = []
        self.full: dict[str, dict[int, None]] = {}
        """Merge keys of generations that can take no more members, and the leaders' ids of each:
        several tenants may have one with the same key."""
        self.kept_bytes = 0
        """Of answers, for those who may join late."""
        self.ledger_ok = True
        self._request_log = request_log
        self._journal = journal
        self._fail_closed = on_ledger_failure == "closed"
        self._models: set[str] = set()
        self._recorded_s = float("-inf")
        self._records: list[bytes] = []
        self._waiting: list[tuple[Then, Cut]] = []
        self._written_total = self._dropped_total = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_s = float("inf")
        self._idle: asyncio.Event | None = None

    def targets_of(self, config: GatewayConfig) -> dict[str, Target]:
        """The targets of another configuration: those that stay the same are the same."""
        known = self.targets
        return {
            upstream.name: target
            if (target := known.get(upstream.name)) and target.upstream == upstream
            else Target(upstream)
            for upstream in config.upstreams
        }

    def use(self, config: GatewayConfig, targets: dict[str, Target]) -> None:
        """Go on by another configuration and its `targets`.

        What is in flight at a target that is left finishes there.
        """
        self._fail_closed = config.on_ledger_failure == "closed"
        self.merging = config.control.merging
        self.metrics.targets.slo = config.control.slo
        stay, left = set(targets.values()), set(self.targets.values())
        for target in stay - left:
            target.pool.start()
        for target in left - stay:
            target.pool.retire()
        self._left = {target for target in self._left | (left - stay) if not target.pool.ended}
        self.targets = targets

    def start(self) -> None:
        """Begin to watch the connections to the engines; needs a running loop."""
        for target in self.targets.values():
            target.pool.start()

    def stop(self) -> None:
        """Write what is left to write, and drop all connections to the engines."""
        self.flush()
        if self._wake is not None:
            self._wake.cancel()
        for target in (*self.targets.values(), *self._left):
            target.pool.stop()

    async def wait_idle(self) -> None:
        """Wait until no request is in flight."""
        self._idle = asyncio.Event()
        if self.exchanges:
            await self._idle.wait()

    @property
    def arm_by_prefix(self) -> bool:
        """An experiment's arm b is routed by the blocks of prompts."""
        experiment = self.controller.experiment
        return experiment is not None and experiment.by_prefix

    def expect(self, exchange: Exchange) -> None:
        """A request is about to be taken on: do not end without it."""
        self.exchanges[exchange.request.id] = exchange

    def arrived(self, exchange: Exchange, now_s: float | None = None) -> None:
        """Take a request on; `now_s` is where something was done with it since it came."""
        if self.full and exchange.request.merge_key is not None:
            self._avoid_full(exchange)
        self.exchanges[exchange.request.id] = exchange
        if self.controller.experiment is not None:
            exchange.arm = self.controller.arm_of(exchange.request)
        self.handle(
            Arrived(exchange.request), exchange.request.arrived_s if now_s is None else now_s
        )

    def handle(self, event: Event, now_s: float) -> None:
        """Tell the controller, and perform its actions in order."""
        if type(event) is ReplicaUp:
            self._came_up(event)
        journal = self._journal
        if journal is None:
            actions = self.controller.handle(event, now_s)
        else:
            try:
                actions = self.controller.handle(event, now_s)
            except Exception as error:
                journal.failed(now_s, event, error)
                raise
            journal.handled(now_s, event, actions)
        for action in actions:
            if type(action) is Dispatch:
                generation = self._generation(action.request_id)
                if generation is not None:
                    generation.dispatch(self.targets[action.replica], now_s)
            elif type(action) is Reject:
                self._reject(action, now_s)
            elif type(action) is Join:
                self._join(action, now_s)
            elif type(action) is WakeAt:
                self._wake_at(action.at_s)
            elif type(action) is AskBudget or type(action) is ReturnBudget:
                self._tell_treasury(action)
            elif type(action) is Load:
                self.on_load(action.model)

    def _tell_treasury(self, action: AskBudget | ReturnBudget) -> None:
        """Tell the treasury, together with all else that is for it in this turn of the loop."""
        if not self._for_treasury:
            asyncio.get_running_loop().call_soon(self._flush_budgets)
        self._for_treasury.append(action)

    def _flush_budgets(self) -> None:
        actions, self._for_treasury = self._for_treasury, []
        self.on_budgets(actions)

    def _generation(self, leader_id: int) -> Generation | None:
        """The generation under this id, begun now if there is none; None: nobody waits for it."""
        exchange = self.exchanges.get(leader_id)
        if exchange is None:
            return self.orphans.get(leader_id)
        return exchange.generation or Generation(self, exchange)

    def _reject(self, action: Reject, now_s: float) -> None:
        exchange = self.exchanges.get(action.request_id)
        if exchange is not None and exchange.generation is None:
            exchange.refuse(rejection(action, exchange.call.body.model, None), now_s)
            return
        generation = self._generation(action.request_id)
        if generation is not None:
            generation.reject(action, now_s)

    def _join(self, action: Join, now_s: float) -> None:
        exchange = self.exchanges.get(action.request_id)
        if exchange is None:
            return
        generation = self._generation(action.leader_id)
        if generation is not None:
            self.metrics.merged.add((action.kind,))
            generation.join(exchange, action.kind, now_s)
            return
        _log.error("request %d cannot join %d", action.request_id, action.leader_id)
        exchange.refuse(Refusal(503, "the request was lost; try again"), now_s)
        self.handle(Cancelled(action.request_id), now_s)

    # --- generations that take no more members ------------------------------------------------

    def close(self, exchange: Exchange) -> None:
        """Too much of this one's answer has gone out: requests like it are not to join any more."""
        key, generation = exchange.request.merge_key, exchange.generation
        if key is not None and generation is not None:
            self.full.setdefault(key, {})[generation.id] = None

    def forget(self, generation: Generation) -> None:
        """A generation is over."""
        merge_key = generation.audience.merge_key
        self.orphans.pop(generation.id, None)
        full = None if merge_key is None else self.full.get(merge_key)
        if merge_key is not None and full is not None:
            full.pop(generation.id, None)
            if not full:
                del self.full[merge_key]

    def _avoid_full(self, exchange: Exchange) -> None:
        """Give the request a merge key under which it may begin a generation, or join another."""
        key = exchange.request.merge_key
        assert key is not None
        while (full := self.full.get(key)) is not None:
            key = f"{key}+{next(reversed(full)):x}"
        exchange.request = msgspec.structs.replace(exchange.request, merge_key=key)

    def take_adapter_uses(self) -> dict[str, int]:
        """What came for adapters since it was asked last."""
        uses, self.adapter_uses = self.adapter_uses, {}
        return uses

    def served_models(self) -> list[str]:
        """Models of the replicas that are not down, or load them when asked, in order of first
        appearance."""
        served: dict[str, None] = {}
        for state in self.controller.replica_states():
            if state.state != "down":
                served.update(dict.fromkeys(state.models))
            served.update(dict.fromkeys(state.loadable))
        return list(served)

    def record_intent(self, request: Request, arrived_at_utc_ns: int, then: Then, cut: Cut) -> None:
        """Record that a request is about to be dispatched; `then` is told whether it may be.

        `cut` ends its connection, should `then` raise: a client must not wait for ever.
        """
        log = self._request_log
        record = b"" if log is None else log.encode_intent(request, arrived_at_utc_ns)
        self._record(record, then, cut)

    def finish(self, timeline: RequestTimeline, then: Then, cut: Cut) -> None:
        """Record and count a request that has ended, forget it, and `then` send its last bytes."""
        self.exchanges.pop(timeline.id, None)
        # A name that no engine ever served is a client's free text: no label.
        model = timeline.model if timeline.model in self._models else "unknown"
        self.metrics.finished(timeline, model)
        log = self._request_log
        self._record(b"" if log is None else log.encode_finish(timeline), then, cut)

    def count_arm(self, timeline: RequestTimeline, seen: ArmSeen, failure: str | None) -> None:
        """Count a request that has ended for its arm; `failure`: why an attempt of it failed."""
        experiment = self.controller.experiment
        if experiment is None or experiment.plan.split.name != seen.experiment:
            return
        crossed = experiment.is_crossed(seen, timeline.replica)
        if failure in ("busy", "unloaded"):  # of our own doing
            failure = None
        met = self.metrics.targets.met(timeline)
        self.metrics.experiment.finished(timeline, seen, crossed=crossed, failure=failure, met=met)

    def flush(self) -> None:
        """Write the records of this turn of the loop with one system call, then go on with each."""
        records, self._records = self._records, []
        waiting, self._waiting = self._waiting, []
        if not records:
            return
        may_go_on = self._request_log is None or self._write(self._request_log, records)
        for then, cut in waiting:
            try:
                then(may_go_on)
            except Exception:
                _log.exception("a request could not be gone on with")
                cut()
        if self._idle is not None and not self.exchanges:
            self._idle.set()

    def _came_up(self, event: ReplicaUp) -> None:
        self._models.update(event.models)
        for model in event.models:
            self.adapters.pop(model, None)
        self.adapters.update((adapter.model, adapter) for adapter in event.adapters)

    def snapshot_ledger(self) -> None:
        """Bring the counters of ledger and journal records up to date."""
        records = self.metrics.records
        records.ledger_records.values[()] = self._written_total
        records.ledger_dropped.values[()] = self._dropped_total
        journal = self._journal
        if journal is not None:
            records.journal_records.values[()] = journal.records_total
            records.journal_dropped.values[()] = journal.dropped_total
            records.journal_stopped.set(int(not journal.ok))

    def _record(self, record: bytes, then: Then, cut: Cut) -> None:
        self._records.append(record)
        self._waiting.append((then, cut))
        now_s = time.monotonic()
        alone = now_s - self._recorded_s > _ALONE_S
        self._recorded_s = now_s
        if len(self._records) > 1:
            return
        if alone:
            self.flush()
        else:
            # At the end of this turn: all that the sockets brought with it is written at once.
            asyncio.get_running_loop().call_soon(self.flush)

    def _write(self, log: RequestLog, records: list[bytes]) -> bool:
        """Write the records; whether their requests may go on."""
        try:
            written = log.write(records)
        except Exception:
            _log.exception("the request log failed")
            written = False
        self._count(written, len(records))
        return written or not self._fail_closed

    def _count(self, written: bool, records: int) -> None:
        if written:
            self._written_total += records
        else:
            self._dropped_total += records
        if written is not self.ledger_ok:
            self.ledger_ok = written
            if written:
                _log.warning("the request log can be written again")
            else:
                _log.error("the request log cannot be written: requests go unrecorded")

    def _wake_at(self, at_s: float) -> None:
        """Wake the controller then, unless it is to be woken earlier: performing one action may
        lead to others, which are performed before the rest of the first ones."""
        if at_s >= self._wake_s:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_s = at_s
        loop = asyncio.get_running_loop()
        # Timers may be early by what they are rounded to; a wake that is early would ask again.
        delay_s = max(0.0, at_s - time.monotonic()) + _ROUNDING_S
        self._wake = loop.call_later(delay_s, self._woke)

    def _woke(self) -> None:
        self._wake, self._wake_s = None, float("inf")
        self.handle(Woke(), time.monotonic())
