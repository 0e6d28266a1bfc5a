"""check_means(): what a load generator saw, beside the means of the engine's own histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mileage.measure.call_record import CallRecord
from mileage.scrape.engine_means import EngineFigure, EngineMean

__all__ = ["AGREE_RATIO", "MeanCheck", "check_means"]

AGREE_RATIO: Final = 0.05
"""Means agree that differ by no more than this share."""


class MeanCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One figure by the engine and as it was seen, in the figure's unit."""

    engine_mean: float
    engine_count: int
    family: str
    seen_mean: float
    seen_count: int

    @property
    def ratio(self) -> float | None:
        """Seen over the engine's own; None where that is 0."""
        return self.seen_mean / self.engine_mean if self.engine_mean > 0.0 else None

    @property
    def agrees(self) -> bool:
        """By no more than 5 % apart."""
        return self.ratio is not None and abs(self.ratio - 1.0) <= AGREE_RATIO


def check_means(
    means: Mapping[EngineFigure, EngineMean], records: Iterable[CallRecord]
) -> dict[EngineFigure, MeanCheck]:
    """Each figure that both know, of requests that ended well.

    `records` are all that the engine served between the two looks, those of the warm-up among them.
    An engine's clock starts when a request reaches it: latencies are from when each was sent, not
    from its scheduled start. Time in the queue cannot be seen from outside.
    """
    ok = [record for record in records if record.outcome == "ok" and record.sent_s is not None]
    seen: dict[EngineFigure, Sequence[float]] = {
        "ttft_s": [r.token_times_s[0] - _sent_s(r) for r in ok if r.token_times_s],
        "tpot_s": [tpot for r in ok if (tpot := _tpot_s(r)) is not None],
        "e2e_s": [ended - _sent_s(r) for r in ok if (ended := _ended_s(r)) is not None],
        "prompt_tokens": [r.prompt_tokens for r in ok if r.prompt_tokens is not None],
        "output_tokens": [r.output_tokens for r in ok if r.output_tokens is not None],
    }
    found: dict[EngineFigure, MeanCheck] = {}
    for figure, mean in means.items():
        if figure == "itl_s":
            check = _gaps(mean, ok)
            if check is not None:
                found[figure] = check
        elif values := seen.get(figure):
            found[figure] = _check(mean, sum(values) / len(values), len(values))
    return found


def _gaps(mean: EngineMean, ok: Sequence[CallRecord]) -> MeanCheck | None:
    """Of all gaps between token events: those that came together have gaps of 0."""
    streams = [r for r in ok if r.token_times_s]
    gaps = sum(sum(r.token_events) - 1 for r in streams)
    if gaps <= 0:
        return None
    total_s = sum(r.token_times_s[-1] - r.token_times_s[0] for r in streams)
    if mean.counts_first_tokens:
        own_gaps = mean.count - len(ok)
        if own_gaps <= 0:
            return None
        mean = msgspec.structs.replace(mean, mean=mean.mean * mean.count / own_gaps, count=own_gaps)
    return _check(mean, total_s / gaps, gaps)


def _check(mean: EngineMean, seen_mean: float, seen_count: int) -> MeanCheck:
    return MeanCheck(
        engine_mean=mean.mean,
        engine_count=mean.count,
        family=mean.family,
        seen_mean=seen_mean,
        seen_count=seen_count,
    )


def _sent_s(record: CallRecord) -> float:
    assert record.sent_s is not None
    return record.sent_s


def _ended_s(record: CallRecord) -> float | None:
    """The last token; without a stream the end of the answer."""
    return record.token_times_s[-1] if record.token_times_s else record.ended_s


def _tpot_s(record: CallRecord) -> float | None:
    count = record.output_tokens or sum(record.token_events)
    times = record.token_times_s
    return (times[-1] - times[0]) / (count - 1) if times and count >= 2 else None
