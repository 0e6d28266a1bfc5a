"""ReplicaAttribution: shares one replica's GPU time out to its requests, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from mileage.core.timeline import RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.columns import sums
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.flights import Flights, flights_of
from mileage.ledger.owed import Owed, among_members
from mileage.ledger.processor_sharing import covered_s
from mileage.ledger.record_estimate import RecordEstimator, RecordEstimatorState, Window
from mileage.ledger.step_fit import StepFit, StepFitState
from mileage.ledger.step_shares import Ratios, shares_of_steps, uses_of
from mileage.ledger.window_shares import Basis, WindowShares

__all__ = ["ReplicaAttribution"]

_NS: Final = 1_000_000_000


class _State(msgspec.Struct, frozen=True):
    told: StepFitState = StepFitState()
    records: RecordEstimatorState = RecordEstimatorState()


class ReplicaAttribution:
    """The windows of one replica, in order. What is learned of its steps is kept from one to the
    next, and over restarts by `state` and `restore`.

    Shares, idle time and warm-up sum to the capacity to the nanosecond, whatever is told: requests
    and steps that overlap, contradict each other or lie outside of the window, clocks that jump.
    """

    def __init__(self, replica: str, config: AttributionConfig) -> None:
        self._replica = replica
        self._config = config
        self._told = StepFit()
        self._records = RecordEstimator(config)

    def window(
        self,
        start_at_utc_ns: int,
        end_at_utc_ns: int,
        *,
        gpus: float,
        up_ns: int,
        warmup_ns: int,
        requests: Sequence[RequestTimeline],
        steps: Sequence[EngineStep] = (),
        busy_ns: int | None = None,
        step_count: int | None = None,
        counters: Ratios | None = None,
    ) -> WindowShares:
        """Share the window out.

        `up_ns`: time of the window in which the replica was up or warming up; `warmup_ns`: of it,
        warming up. `requests`: all that overlap the window, complete; `steps` likewise. `busy_ns`
        and `step_count`: time with steps in progress, and their number, in this window, where the
        engine tells them. `counters`: how active computing, memory and interconnect were, in any
        one unit, where the GPUs tell it.

        Steps may have uses of requests that are not among those given: their shares are of the id
        that the step has.
        """
        assert end_at_utc_ns > start_at_utc_ns
        length_ns = end_at_utc_ns - start_at_utc_ns
        up_ns = min(max(0, up_ns), length_ns)
        capacity_ns = round(up_ns * gpus)
        warmup_ns = min(capacity_ns, round(min(max(0, warmup_ns), up_ns) * gpus))
        flights = flights_of(requests, start_at_utc_ns)
        ratios = self._ratios(counters)
        basis: Basis = "steps"
        saturated = False
        if steps:
            # Steps are seen; that it still warms up is sampled every few seconds.
            owed = self._by_steps(steps, start_at_utc_ns, end_at_utc_ns, gpus, ratios)
            owed = owed.limited(capacity_ns)
        else:
            window = Window(
                start_at_utc_ns, length_ns / _NS, ratios, step_count, busy_ns is not None
            )
            basis, owed, saturated = self._by_records(flights, window, gpus, busy_ns)
            owed = owed.limited(capacity_ns - warmup_ns)
        owed = among_members(owed, flights, length_ns / _NS)
        warmup_ns = min(warmup_ns, capacity_ns - owed.total_ns)
        return WindowShares(
            replica=self._replica,
            start_at_utc_ns=start_at_utc_ns,
            end_at_utc_ns=end_at_utc_ns,
            capacity_ns=capacity_ns,
            shares=owed.shares(),
            idle_ns=capacity_ns - owed.total_ns - warmup_ns,
            warmup_ns=warmup_ns,
            basis=basis,
            saturated=saturated,
        )

    def state(self) -> bytes:
        """What was learned of the replica's steps; requests are not in it."""
        return msgspec.msgpack.encode(_State(self._told.state(), self._records.state()))

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave. What cannot be read, as another version wrote it, is left:
        it is learned again."""
        try:
            found = msgspec.msgpack.decode(state, type=_State)
            told, records = StepFit(found.told), RecordEstimator(self._config, found.records)
        except (msgspec.MsgspecError, ValueError):
            return
        self._told, self._records = told, records

    def _ratios(self, counters: Ratios | None) -> Ratios:
        config = self._config
        ratios = (config.compute_ratio, config.memory_ratio, config.interconnect_ratio)
        if counters is None or config.weighed_by == "ratios":
            return ratios
        total = sum(counters)
        if not (min(counters) >= 0.0 and 0.0 < total < float("inf")):
            return ratios
        computing, memory, interconnect = (each / total for each in counters)
        return computing, memory, interconnect

    def _by_steps(
        self,
        steps: Sequence[EngineStep],
        start_ns: int,
        end_ns: int,
        gpus: float,
        ratios: Ratios,
    ) -> Owed:
        ordered = sorted(steps, key=_started)
        count, length = len(ordered), end_ns - start_ns
        began = np.array([s.started_at_utc_ns - start_ns for s in ordered], dtype=np.int64)
        took = np.array([max(0, s.duration_ns) for s in ordered], dtype=np.int64)
        # Steps do not overlap: where they seem to, the time is that of the first one.
        ended = np.maximum.accumulate(began + took)
        before = np.concatenate((began[:1], ended[:-1]))
        within = np.clip(ended, 0, length) - np.clip(np.maximum(began, before), 0, length)
        gpu_ns = np.rint(np.maximum(0, within) * gpus).astype(np.int64)
        uses = uses_of(ordered)
        decode = uses.decode_tokens
        kv = np.where(decode > 0.0, uses.context_tokens, 0.0)
        inside = (began >= 0) & (ended <= length) & (took > 0)
        # Each step teaches once, in the window that has all of it.
        self._told.learn(
            sums(decode, uses.steps, count)[inside],
            sums(kv, uses.steps, count)[inside],
            sums(uses.prefill_tokens, uses.steps, count)[inside],
            took[inside] / _NS,
        )
        shares = shares_of_steps(
            uses, gpu_ns, self._told.model, ratios, self._config.decode_cost_tokens
        )
        return Owed.exact(uses.requests, *shares)

    def _by_records(
        self, flights: Flights, window: Window, gpus: float, busy_ns: int | None
    ) -> tuple[Basis, Owed, bool]:
        length_s = window.length_s
        busy_s = covered_s(flights.start_s, flights.end_s, length_s)
        if busy_ns is not None:
            busy_s = min(length_s, max(0.0, busy_ns / _NS))
        if not len(flights) or busy_s <= 0.0:
            return "step_totals" if window.totals else "first_last", Owed.none(), False
        basis, found = self._records.estimate(flights, window)
        weights = np.maximum(found.weights, 1e-300)
        owed = Owed.estimated(
            flights.ids,
            round(busy_s * _NS * gpus),
            found.weights,
            found.prefill / weights,
            found.recomputed / np.maximum(found.prefill, 1e-300),
            error_ratio=found.error_ratio,
            error_ns=round(found.error_s * _NS * gpus),
        )
        return basis, owed, found.saturated


def _started(step: EngineStep) -> int:
    return step.started_at_utc_ns
