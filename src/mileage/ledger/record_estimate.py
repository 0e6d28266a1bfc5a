"""RecordEstimator: shares a window by what the gateway's records tell, as well as they do."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np

from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.estimate import Estimate
from mileage.ledger.estimate_first_last import estimate_first_last
from mileage.ledger.estimate_token_times import SeenFit, SeenFitState, estimate_token_times
from mileage.ledger.flights import Flights
from mileage.ledger.flow_fit import FlowFit, FlowFitState
from mileage.ledger.processor_sharing import shared_s
from mileage.ledger.step_shares import Ratios
from mileage.ledger.window_shares import Basis
from mileage.policy.load import PREFILL_COST_BUSY

__all__ = ["RecordEstimator", "RecordEstimatorState", "Window"]

_TIMED_MIN_RATIO: Final = 0.8
_FIRST_MIN_RATIO: Final = 0.5


class Window(NamedTuple):
    """What is to be shared out."""

    start_at_utc_ns: int
    length_s: float
    ratios: Ratios
    step_count: int | None = None
    totals: bool = False
    """The engine tells its busy time."""


class RecordEstimatorState(msgspec.Struct, frozen=True, array_like=True):
    """What was learned."""

    seen: SeenFitState = SeenFitState()
    flows: FlowFitState = FlowFitState()


class RecordEstimator:
    """Token times where nearly all answers have them; else first and last tokens; where answers
    are not streamed, processor sharing."""

    def __init__(
        self, config: AttributionConfig, state: RecordEstimatorState | None = None
    ) -> None:
        state = state or RecordEstimatorState()
        self._config = config
        self._seen = SeenFit(state.seen)
        self._flows = FlowFit(state.flows)

    def state(self) -> RecordEstimatorState:
        """What was learned."""
        return RecordEstimatorState(self._seen.state(), self._flows.state())

    def estimate(self, flights: Flights, window: Window) -> tuple[Basis, Estimate]:
        """How the busy time of the window is shared, and what that rests on."""
        config, length_s = self._config, window.length_s
        if self._timed(flights):
            found = estimate_token_times(flights, length_s, self._seen, config, window.ratios)
            if found is not None:
                return "token_times", found
        answers = flights.output_tokens > 1.0
        known = answers & ~np.isnan(flights.first_s)
        if answers.any() and known.sum() >= _FIRST_MIN_RATIO * answers.sum():
            found = estimate_first_last(
                flights,
                window.start_at_utc_ns,
                length_s,
                self._flows,
                config,
                window.ratios,
                window.step_count,
            )
            return "step_totals" if window.totals else "first_last", found
        return "meter", _by_meter(flights, length_s)

    def _timed(self, flights: Flights) -> bool:
        """Nearly all tokens of answers have times, and they are not too many to look at."""
        events = sum(map(len, flights.token_times)) // 2
        if not 0 < events <= self._config.token_events_max:
            return False
        timed = np.array([bool(times) for times in flights.token_times])
        tokens = flights.output_tokens
        return bool(tokens[timed].sum() >= _TIMED_MIN_RATIO * tokens.sum())


def _by_meter(flights: Flights, length_s: float) -> Estimate:
    """As the gateway meters while requests run: by their work, over the time that they were there.
    What it may be off is as much as it is."""
    prompt = PREFILL_COST_BUSY * flights.uncached_tokens
    work = 1.0 + prompt + flights.output_tokens
    weights = shared_s(flights.start_s, flights.end_s, work, length_s)
    return Estimate(
        weights=weights,
        prefill=weights * prompt / work,
        recomputed=np.zeros(len(weights)),
        error_ratio=1.0,
        error_s=0.0,
    )
