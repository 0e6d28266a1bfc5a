"""ExperimentDesk: begins, watches and ends the one experiment that the gateway may run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from mileage.control.experiment_config import ExperimentConfig, ExperimentMode
from mileage.core.errors import ConfigError, MileageError
from mileage.core.events import ExperimentChanged
from mileage.gateway.admin.experiment_figures import ZERO, ArmFigures, figures_of, minus
from mileage.gateway.admin.experiment_report import (
    ArmReport,
    BlockLog,
    ExperimentVerdict,
    arm_report,
)
from mileage.gateway.messages import Report
from mileage.measure.comparison import Comparison
from mileage.measure.metrics import FamilySnapshot
from mileage.policy.experiment import cycle_slots
from mileage.policy.experiment_canary import CanaryConfig, CanaryState, ExperimentCanary

__all__ = [
    "ExperimentDesk",
    "ExperimentRecord",
    "ExperimentState",
    "ExperimentStatus",
    "ExperimentStore",
]

ExperimentState: TypeAlias = Literal["none", "running", "rolled_back", "promoted", "stopped"]
"""rolled_back and promoted: all traffic is arm a's, or b's; stopped: there are no arms any more."""

_TICK_S = 1.0
_DOWN = frozenset({"down", "open"})
_log = logging.getLogger(__name__)


class ExperimentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway that starts again is to know: how far the experiment had come.

    `written` is the section of the configuration file at that time; where it is another by now,
    the file counts.
    """

    written: ExperimentConfig
    config: ExperimentConfig
    state: ExperimentState
    step: int
    ratio: float
    reason: str
    since_utc_s: float


class ExperimentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The experiment as it stands. Null: there is none, or nothing is known yet.

    `evidence`: odds to 1 that b is worse than a, by what it is judged by (see `by_measure`); a
    canary is rolled back at 1 / `false_alarm_ratio`. `comparisons`: b against a over the blocks of
    time so far; their intervals hold for whoever looks once, `verdict` for whoever watches.
    """

    state: ExperimentState
    name: str | None = None
    mode: ExperimentMode | None = None
    from_file: bool | None = None
    ratio: float | None = None
    step: int | None = None
    steps: tuple[float, ...] = ()
    reason: str | None = None
    since_utc_s: float | None = None
    evidence: float | None = None
    by_measure: dict[str, float] = {}
    blocks: int = 0
    verdict: ExperimentVerdict | None = None
    verdict_text: str | None = None
    rollbacks_total: int = 0
    a: ArmReport | None = None
    b: ArmReport | None = None
    comparisons: list[Comparison] = []


class ExperimentStore(Protocol):
    """Keeps the record over a restart."""

    def load(self) -> ExperimentRecord | None:
        """The record that was saved last; None: there is none that can be read."""
        ...

    def save(self, record: ExperimentRecord) -> None:
        """Keep it. Raises OSError or a MileageError where that fails."""
        ...


class _Totals(Protocol):
    """What is needed of the fleet."""

    def families(self) -> list[FamilySnapshot]: ...

    def reports(self) -> list[Report]: ...


class _Running:
    """One experiment from its begin on."""

    def __init__(
        self, record: ExperimentRecord, baseline: tuple[ArmFigures, ArmFigures], now_s: float
    ) -> None:
        self.config = config = record.config
        self.began_s, self.baseline = now_s, baseline
        self.totals = (ZERO, ZERO)
        canary = config.mode == "canary"
        steps = config.steps if canary else (config.ratio,)
        block_s = config.block_s
        if not config.replicas:
            block_s = max(block_s, max(map(cycle_slots, steps)) * config.slot_s)
        self.log = BlockLog(block_s=block_s, requests_min=config.block_requests_min)
        status: Literal["running", "rolled_back", "promoted"] = (
            record.state if record.state in ("rolled_back", "promoted") else "running"
        )
        self.canary = ExperimentCanary(
            CanaryConfig(
                steps=steps,
                requests_min=config.step_requests_min,
                time_min_s=config.step_time_min_s,
                false_alarm_ratio=config.false_alarm_ratio,
                tolerance_ratio=config.tolerance_ratio,
                block_requests_min=config.block_requests_min,
                block_s=block_s,
                acts=canary,
                # With slots it is the slot that is dealt, with all that fails in it.
                grouped=not config.replicas or config.sticky != "request",
            ),
            now_s,
            CanaryState(
                status=status,
                step=min(record.step, len(steps) - 1),
                ratio=record.ratio,
                reason=record.reason,
            ),
        )

    def look(self, families: Sequence[FamilySnapshot], now_s: float, b_up: bool | None) -> bool:
        """Take in the totals; True: what is decided is another thing now."""
        now = figures_of(families)
        a, b = self.totals = (minus(now[0], self.baseline[0]), minus(now[1], self.baseline[1]))
        before = self.canary.state
        self.log.update(a, b, now_s)
        return self.canary.update(a.counts(), b.counts(), now_s, b_up=b_up) != before


class ExperimentDesk:
    """Owns the gateway's experiment. `deliver` tells all workers of an event.

    `configure` says what the configuration file has, at the start and at each reload: what is there
    anew begins, what is gone ends. `start`, `stop` and `promote` do so by hand. `tick`, once a
    second, looks at both arms' totals; a canary then goes on or back by itself.
    """

    def __init__(
        self,
        fleet: _Totals,
        deliver: Callable[[ExperimentChanged], None],
        store: ExperimentStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self._fleet, self._deliver, self._store = fleet, deliver, store
        self._clock, self._utc_s = clock, utc_s
        self._written: ExperimentConfig | None = None
        self._record: ExperimentRecord | None = None
        self._running: _Running | None = None
        self._rollbacks = 0
        self._compared: tuple[int, list[Comparison]] = (-1, [])

    def configure(self, written: ExperimentConfig) -> None:
        """This is what the file has. An experiment that it had before goes on as it is."""
        if written == self._written:
            return
        known = self._store.load() if self._written is None else None
        self._written = written
        if known is not None and known.written == written:
            if known.config.name is not None:
                _log.warning("experiment %r goes on: %s", known.config.name, known.state)
                self._take(known)
        elif written.name is not None:
            self._begin(written, "as configured")
        elif self._record is not None:
            self._end("not configured any more")

    def start(self, config: ExperimentConfig | None) -> ExperimentStatus:
        """Begin this experiment, or that of the file, from its beginning.

        Raises ConfigError where it has no name.
        """
        config = config or self._written
        if config is None or config.name is None:
            raise ConfigError("experiment.name", None, "a name: without it there is no experiment")
        self._begin(config, "started by hand")
        return self.status()

    def stop(self) -> ExperimentStatus:
        """End it: there are no arms any more. Raises MileageError where none runs."""
        self._require()
        self._end("stopped by hand")
        return self.status()

    def promote(self) -> ExperimentStatus:
        """Give arm b all the traffic. Raises MileageError where none runs."""
        record = self._require()
        assert self._running is not None
        self._running.canary.promote(1.0, "promoted by hand")
        self._decide(record, "promoted", 1.0, "promoted by hand")
        return self.status()

    def status(self) -> ExperimentStatus:
        """How it stands."""
        record, running = self._record, self._running
        if record is None:
            return ExperimentStatus(state="none", rollbacks_total=self._rollbacks)
        config = record.config
        status = ExperimentStatus(
            state=record.state,
            name=config.name,
            mode=config.mode,
            from_file=config == self._written,
            ratio=None if record.state == "stopped" else record.ratio,
            step=record.step if config.mode == "canary" else None,
            steps=config.steps if config.mode == "canary" else (),
            reason=record.reason,
            since_utc_s=record.since_utc_s,
            rollbacks_total=self._rollbacks,
        )
        if running is None:
            return status
        evidence = running.canary.evidence
        return msgspec.structs.replace(
            status,
            evidence=evidence.value,
            by_measure=evidence.by_measure,
            blocks=evidence.blocks,
            verdict=running.log.verdict,
            verdict_text=running.log.verdict_text,
            a=arm_report(running.totals[0]),
            b=arm_report(running.totals[1]),
            comparisons=self._comparisons(running),
        )

    async def run(self) -> None:
        """Tick once a second, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self.tick()
            except Exception:
                _log.exception("the experiment could not be looked at")

    def tick(self) -> None:
        """Look at both arms' totals, and do what follows from them."""
        running, record = self._running, self._record
        if running is None or record is None:
            return
        if not running.look(self._fleet.families(), self._clock(), self._b_up(running.config)):
            return
        state = running.canary.state
        self._decide(record, state.status, state.ratio, state.reason, step=state.step)

    # --- changes ------------------------------------------------------------------------------

    def _require(self) -> ExperimentRecord:
        if self._record is None or self._running is None:
            raise MileageError("there is no experiment that runs")
        return self._record

    def _begin(self, config: ExperimentConfig, reason: str) -> None:
        ratio = config.steps[0] if config.mode == "canary" else config.ratio
        _log.warning("experiment %r begins with %g of the traffic", config.name, ratio)
        self._take(
            ExperimentRecord(
                written=self._written or ExperimentConfig(),
                config=config,
                state="running",
                step=0,
                ratio=ratio,
                reason=reason,
                since_utc_s=self._utc_s(),
            )
        )

    def _end(self, reason: str) -> None:
        record, self._running = self._record, None
        assert record is not None
        _log.warning("experiment %r ends: %s", record.config.name, reason)
        self._put(
            msgspec.structs.replace(
                record,
                written=self._written or ExperimentConfig(),
                state="stopped",
                reason=reason,
                since_utc_s=self._utc_s(),
            )
        )
        self._deliver(ExperimentChanged(""))

    def _take(self, record: ExperimentRecord) -> None:
        """Go by this record."""
        self._running, self._compared = None, (-1, [])
        self._put(record)
        if record.state == "stopped":
            self._deliver(ExperimentChanged(""))
            return
        baseline = figures_of(self._fleet.families())
        self._running = _Running(record, baseline, self._clock())
        self._tell_workers(record, self._running)

    def _decide(
        self,
        record: ExperimentRecord,
        state: ExperimentState,
        ratio: float,
        reason: str,
        *,
        step: int | None = None,
    ) -> None:
        running = self._running
        assert running is not None
        _log.warning(
            "experiment %r: %s with %g of the traffic: %s", record.config.name, state, ratio, reason
        )
        self._rollbacks += state == "rolled_back"
        record = msgspec.structs.replace(
            record,
            state=state,
            ratio=ratio,
            step=record.step if step is None else step,
            reason=reason,
            since_utc_s=self._utc_s(),
        )
        # First the traffic: what follows may fail.
        self._tell_workers(record, running)
        self._put(record)

    def _tell_workers(self, record: ExperimentRecord, running: _Running) -> None:
        plan = record.config.plan(record.ratio, began_s=running.began_s)
        self._deliver(ExperimentChanged(msgspec.json.encode(plan).decode()))

    def _put(self, record: ExperimentRecord) -> None:
        self._record = record
        try:
            self._store.save(record)
        except (OSError, MileageError) as error:
            _log.error("the experiment's state is not kept over a restart: %s", error)

    def _b_up(self, config: ExperimentConfig) -> bool | None:
        """Whether any replica of arm b takes requests, of any worker's view."""
        names = frozenset(config.replicas)
        states = [
            each.state
            for report in self._fleet.reports()
            for each in report.replicas
            if each.name in names
        ]
        return any(state not in _DOWN for state in states) if states else None

    def _comparisons(self, running: _Running) -> list[Comparison]:
        blocks = running.canary.evidence.blocks
        if self._compared[0] != blocks:
            self._compared = (blocks, running.log.comparisons())
        return self._compared[1]
