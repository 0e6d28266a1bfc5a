"""One engine under a steady load, without a controller: what it yields in the long run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from mileage.measure.quantiles import quantile
from mileage.sim.engine import Engine
from mileage.sim.sequence import Sequence

__all__ = ["SteadyFigures", "run_steady"]


class SteadyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that ended in the span that was measured."""

    output_tokens_per_s: float
    requests_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_mean_s: float | None
    """Median over requests of the mean gap between a request's tokens; None: of one token each."""
    itl_p99_s: float | None
    """Median over requests of the p99 of a request's own gaps."""
    running_mean: float
    """Requests that the engine ran at a time, while it had any."""
    preemptions: int
    requests: int


class _Span:
    """What is counted from the end of the warm-up on."""

    def __init__(self, engine: Engine, start_s: float) -> None:
        self.start_s = start_s
        self._engine = engine
        self._before = self._counts()
        self.ended: list[Sequence] = []

    def _counts(self) -> tuple[float, float, float, float]:
        engine = self._engine
        return engine.output_tokens, engine.busy_s, engine.running_s, engine.preemptions

    def figures(self, end_s: float) -> SteadyFigures:
        took_s = end_s - self.start_s
        tokens, busy_s, running_s, preemptions = (
            now - before for now, before in zip(self._counts(), self._before, strict=True)
        )
        ttft_s = [each.first_token_s - each.arrived_s for each in self.ended]
        gaps = [each for each in self.ended if not math.isnan(each.itl_mean_s)]
        p50, p99 = quantile(ttft_s, 0.5), quantile(ttft_s, 0.99)
        assert p50 is not None
        assert p99 is not None
        return SteadyFigures(
            output_tokens_per_s=tokens / took_s,
            requests_per_s=len(self.ended) / took_s,
            ttft_p50_s=p50,
            ttft_p99_s=p99,
            itl_mean_s=quantile([each.itl_mean_s for each in gaps], 0.5),
            itl_p99_s=quantile([each.itl_p99_s for each in gaps], 0.5),
            running_mean=running_s / busy_s if busy_s else 0.0,
            preemptions=int(preemptions),
            requests=len(self.ended),
        )


def run_steady(
    engine: Engine,
    requests: Iterator[Sequence],
    *,
    in_flight: int | None,
    warm_up: int,
    measured: int,
) -> SteadyFigures | None:
    """Feed a fresh engine until `measured` requests have ended after the first `warm_up` ones.

    `in_flight`: so many requests are kept in the engine, each followed by another one (a closed
    loop). None: they come at their `arrived_s`. None is returned where one of them can never fit.
    There must be `requests` enough.
    """
    now_s, count = 0.0, 0
    span = _Span(engine, 0.0) if warm_up == 0 else None
    following = next(requests) if in_flight is None else None
    for _ in range(in_flight or 0):
        if not _closed(engine, next(requests), now_s):
            return None
    while True:
        if following is not None and following.arrived_s <= engine.due_s:
            now_s = following.arrived_s
            if not engine.fits(following):
                return None
            engine.add(following, now_s)
            following = next(requests, None)
            continue
        now_s = engine.due_s
        engine.finish_steps(now_s)
        done = list(engine.done)
        count += len(done)
        if span is not None:
            span.ended.extend(done)
            if len(span.ended) >= measured:
                return span.figures(now_s)
        elif count >= warm_up:
            span = _Span(engine, now_s)
        for _ in range(0 if in_flight is None else len(done)):
            if not _closed(engine, next(requests), now_s):
                return None
        engine.begin(now_s)


def _closed(engine: Engine, sequence: Sequence, now_s: float) -> bool:
    """A request of the closed loop comes; False: it can never fit."""
    if not engine.fits(sequence):
        return False
    sequence.arrived_s = now_s
    engine.add(sequence, now_s)
    return True
