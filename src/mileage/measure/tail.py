"""Tail attribution: which stage makes the slowest requests of a run slower than typical ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

from mileage.core.timeline import RequestTimeline
from mileage.measure.call_record import CallRecord
from mileage.measure.tail_batch import Batch
from mileage.measure.tail_evidence import evidence
from mileage.measure.tail_flight import Flight, flights
from mileage.measure.tail_host import Pause
from mileage.measure.tail_pieces import Piece, merged, pieces
from mileage.measure.tail_relabel import Pauses, relabelled
from mileage.measure.tail_report import StageShare, TailOptions, TailReport
from mileage.measure.tail_stage import STAGES, Role, Stage, stage_title
from mileage.measure.tail_waterfall import waterfall

__all__ = ["attribute_tail", "call_pieces", "latency_ns"]

_REQUESTS_MIN = 20
"""Of fewer requests nothing is told: the slowest of them are no tail."""
_TYPICAL_BAND = 0.1
"""Typical are the requests whose rank is within this share of the median's, to either side."""
_SAMPLE_MAX = 300
"""So many of the tail, and of the typical, are looked at: evenly chosen by rank."""
_SLOWER_RATIO = 1.1
"""Below it the slowest are as fast as typical ones: there is no tail."""

_Key: TypeAlias = tuple[Stage, Role | None]


def attribute_tail(
    records: Sequence[CallRecord],
    options: TailOptions | None = None,
    *,
    timelines: Mapping[str, RequestTimeline] | None = None,
    pauses: Sequence[Pause] = (),
) -> TailReport:
    """Why the slowest requests of a run are slow.

    All `records` tell what else ran; the tail is of those that were measured and ended well.
    `timelines` are a gateway's records by request id; `pauses` what was seen of processes and
    hosts, on the clock of `records`. Raises ValueError without any request to tell of.
    """
    options = options or TailOptions()
    sent = flights(records, timelines or {})
    batches = _batches(sent)
    counted = [f for f in sent if _counts(f, options)]
    if not counted:
        raise ValueError("no measured request ended well")
    ranked = sorted(counted, key=lambda f: (latency_ns(f, options), f.record.index))
    tail = ranked[-_tail_size(len(ranked), options) :]
    typical = _typical(ranked)
    laid = Pauses(pauses)

    def cut(flight: Flight) -> list[Piece]:
        return call_pieces(flight, batches[flight.record.target], laid, options)

    chosen = _sample(tail)
    slow = [(flight, cut(flight)) for flight in chosen]
    usual = [cut(flight) for flight in _sample(typical)]
    stages = _stages([found for _, found in slow], usual)
    tail_s, typical_s = _mean_s([found for _, found in slow]), _mean_s(usual)
    first, verdict = _verdict(len(ranked), stages, tail_s, typical_s)
    worst = list(reversed(slow))[: options.waterfalls]
    return TailReport(
        latency=options.latency,
        requests=len(ranked),
        tail_requests=len(tail),
        typical_requests=len(typical),
        threshold_s=latency_ns(tail[0], options) / 1e9,
        tail_mean_s=tail_s,
        typical_mean_s=typical_s,
        first=first,
        verdict=verdict,
        evidence=() if first is None else evidence(first, slow, typical, batches, pauses),
        stages=stages,
        waterfalls=tuple(
            waterfall(flight, found, batches[flight.record.target]) for flight, found in worst
        ),
        left_out=dict(
            Counter(r.outcome for r in records if r.phase == "measured" and r.outcome != "ok")
        ),
        joined=sum(f.joined for f in (*tail, *typical)),
    )


def call_pieces(flight: Flight, batch: Batch, pauses: Pauses, options: TailOptions) -> list[Piece]:
    """One call's pieces; their lengths sum to its latency exactly."""
    return merged(relabelled(pieces(flight, batch, options.latency), pauses))


def latency_ns(flight: Flight, options: TailOptions) -> int:
    """The latency that the tail is of, from the scheduled start."""
    end_ns = flight.end_ns if options.latency == "e2e" else flight.first_ns
    return end_ns - flight.scheduled_ns


def _batches(sent: Sequence[Flight]) -> dict[int, Batch]:
    targets: dict[int, list[Flight]] = {}
    for flight in sent:
        targets.setdefault(flight.record.target, []).append(flight)
    return {target: Batch(found) for target, found in targets.items()}


def _counts(flight: Flight, options: TailOptions) -> bool:
    record = flight.record
    seen = options.latency == "e2e" or len(flight.tokens_ns) > 0
    return record.phase == "measured" and record.outcome == "ok" and seen


def _tail_size(count: int, options: TailOptions) -> int:
    share = math.ceil(options.share_ratio * count * (1.0 - 1e-12))
    return max(1, share, min(options.requests_min, count // 10))


def _typical(ranked: Sequence[Flight]) -> Sequence[Flight]:
    middle, reach = len(ranked) / 2.0, _TYPICAL_BAND * len(ranked)
    low, high = math.floor(middle - reach), math.ceil(middle + reach)
    return ranked[max(0, low) : max(low + 1, high)]


def _sample(ranked: Sequence[Flight]) -> Sequence[Flight]:
    """At most `_SAMPLE_MAX` of them, evenly spaced, the last one among them."""
    count = len(ranked)
    if count <= _SAMPLE_MAX:
        return ranked
    return [ranked[(i + 1) * count // _SAMPLE_MAX - 1] for i in range(_SAMPLE_MAX)]


def _sums(calls: Sequence[Sequence[Piece]]) -> Counter[_Key]:
    total: Counter[_Key] = Counter()
    for found in calls:
        for piece in found:
            total[piece.stage, piece.role] += piece.end_ns - piece.start_ns
    return total


def _mean_s(calls: Sequence[Sequence[Piece]]) -> float:
    return sum(_sums(calls).values()) / len(calls) / 1e9


def _stages(
    slow: Sequence[Sequence[Piece]], usual: Sequence[Sequence[Piece]]
) -> tuple[StageShare, ...]:
    tail, typical = _sums(slow), _sums(usual)
    tail_s, typical_s = _mean_s(slow), _mean_s(usual)
    more_s = tail_s - typical_s
    found = []
    for key in tail | typical:
        one_s, other_s = tail[key] / len(slow) / 1e9, typical[key] / len(usual) / 1e9
        found.append(
            StageShare(
                stage=key[0],
                role=key[1],
                title=stage_title(*key),
                tail_s=one_s,
                tail_ratio=one_s / tail_s if tail_s else 0.0,
                typical_s=other_s,
                typical_ratio=other_s / typical_s if typical_s else 0.0,
                excess_s=one_s - other_s,
                excess_ratio=(one_s - other_s) / more_s if more_s > 0 else None,
            )
        )
    found.sort(key=lambda share: (STAGES.index(share.stage), share.role or ""))
    return tuple(sorted(found, key=attrgetter("excess_s"), reverse=True))


def _verdict(
    count: int, stages: Sequence[StageShare], tail_s: float, typical_s: float
) -> tuple[StageShare | None, str]:
    if count < _REQUESTS_MIN:
        return None, f"not enough evidence: {count} requests, {_REQUESTS_MIN} are needed"
    if tail_s <= typical_s * _SLOWER_RATIO:
        return None, "no tail: the slowest requests are about as fast as typical ones"
    first = stages[0]
    share = first.excess_s / (tail_s - typical_s)
    return first, (
        f"{first.title} comes first: {first.tail_s:.3f} s per request of the tail against "
        f"{first.typical_s:.3f} s of a typical one, {share:.0%} of what the tail has more"
    )
