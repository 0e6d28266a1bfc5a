"""GatewayRecord: what a gateway before simulated engines would have written of each request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mileage.core.timeline import Outcome, RequestTimeline
from mileage.measure.timeline import RUNS_MAX
from mileage.sim.outcome import CANCELLED, FAILED, OK, REJECTED, Outcomes
from mileage.sim.sim_result import SimResult
from mileage.sim.step_log import Stretch
from mileage.workload.trace_request import TraceRequest

__all__ = ["GatewayRecord"]

_NS: Final = 1e9
_US: Final = 1e6
_SAME_S: Final = 1e-9
_OUTCOMES: Final[dict[int, Outcome]] = {
    OK: "ok",
    REJECTED: "rejected",
    FAILED: "failed",
    CANCELLED: "cancelled",
}
_Tokens = tuple[NDArray[np.float64], int]


class GatewayRecord:
    """A Watcher that keeps when the tokens of each request came out, and to which replica it went.

    Memory grows with the stretches of steps that each request was in. Requests that shared the
    generation of another one have no token times here.
    """

    def __init__(
        self,
        model: str,
        *,
        started_at_utc_ns: int = 0,
        delay_mean_s: float = 0.0,
        random: Random | None = None,
    ) -> None:
        """`started_at_utc_ns`: when the trace began, by the clock of the gateway. `delay_mean_s`:
        tokens reach it so much later than the step's end, exponentially distributed by `random`;
        those of a stream stay in order."""
        self._model, self._started_ns = model, started_at_utc_ns
        self._delay_mean_s = delay_mean_s
        seed = 0 if random is None else random.getrandbits(63)
        self._delays = np.random.Generator(np.random.PCG64(seed))
        self._tokens: dict[int, list[_Tokens]] = {}
        self._sent: dict[int, tuple[str, float]] = {}

    def dispatched(self, request_id: int, replica: str, now_s: float) -> None:
        """A request is sent to a replica."""
        self._sent[request_id] = (replica, now_s)

    def stepped(self, replica: str, stretch: Stretch) -> None:
        """Steps of an engine are over."""
        ends_s = stretch.ends_s
        for part in stretch.parts:
            if part.output_tokens:
                self._tokens.setdefault(part.request_id, []).append((ends_s, part.output_tokens))

    def timelines(
        self,
        requests: Sequence[TraceRequest],
        result: SimResult,
        *,
        hides_cached_tokens: bool = False,
    ) -> list[RequestTimeline]:
        """Of all requests of the trace, in its order. `hides_cached_tokens`: engines do not tell
        what they found in their caches, as is vLLM's default."""
        assert len(requests) == len(result.outcomes)
        return [
            self._timeline(row, request, result.outcomes, hides_cached_tokens)
            for row, request in enumerate(requests)
        ]

    def _timeline(
        self, row: int, request: TraceRequest, outcomes: Outcomes, hidden: bool
    ) -> RequestTimeline:
        arrived_s = outcomes.arrived_s[row]
        replica, sent_s = self._sent.get(row + 1, (None, math.nan))
        status, first_s = outcomes.status[row], _known(outcomes.ttft_s[row])
        answered, finished_s = status == OK, _known(outcomes.e2e_s[row])
        times: tuple[int, ...] = ()
        last_s = None
        if request.stream and first_s is not None and outcomes.output_tokens[row]:
            offsets_s, counts = _tokens(arrived_s, first_s, self._tokens.get(row + 1, ()))
            if self._delay_mean_s:
                offsets_s += self._delays.exponential(self._delay_mean_s, len(offsets_s))
                np.maximum.accumulate(offsets_s, out=offsets_s)
            first_s, last_s = float(offsets_s[0]), float(offsets_s[-1])
            finished_s = last_s if finished_s is None else max(last_s, finished_s)
            times = _flat(offsets_s, counts)
        return RequestTimeline(
            id=row + 1,
            tenant=request.tenant,
            model=self._model if request.model is None else request.model,
            endpoint=request.endpoint,
            stream=request.stream,
            arrived_at_utc_ns=self._started_ns + round(arrived_s * _NS),
            outcome=_OUTCOMES[status],
            status=200 if answered else None,
            replica=replica,
            attempts=0 if replica is None else 1,
            dispatched_s=_known(sent_s - arrived_s),
            first_token_s=first_s if times else None,
            last_token_s=last_s,
            finished_s=finished_s,
            prompt_tokens=outcomes.prompt_tokens[row] if answered else None,
            cached_tokens=outcomes.cached_tokens[row] if answered and not hidden else None,
            output_tokens=outcomes.output_tokens[row] if answered else None,
            output_tokens_counted=sum(times[1::2]) or None,
            token_times=times[: 2 * RUNS_MAX],
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _tokens(
    arrived_s: float, first_s: float, tokens: Sequence[_Tokens]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When tokens came, after the arrival, and how many at a time.

    The first one is as the client had it: of engines that hand prompts over, later than computed.
    """
    sizes = np.fromiter((len(ends_s) for ends_s, _ in tokens), np.int64, len(tokens))
    each = np.fromiter((count for _, count in tokens), np.int64, len(tokens))
    moments = np.concatenate([ends_s for ends_s, _ in tokens] or [np.empty(0)]) - arrived_s
    later = moments > first_s + _SAME_S
    counts = np.repeat(each, sizes)[later]
    return np.concatenate(([first_s], moments[later])), np.concatenate(([1], counts))


def _flat(offsets_s: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[int, ...]:
    flat = np.empty(2 * len(offsets_s), dtype=np.int64)
    flat[::2] = np.rint(offsets_s * _US)
    flat[1::2] = counts
    return tuple(flat.tolist())
