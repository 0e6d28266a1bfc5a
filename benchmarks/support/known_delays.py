"""Plans of calls with known delays, and what their latencies are by what the server really did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

from benchmarks.support.payloads import CHAT_MODEL, chat_request
from benchmarks.support.timed_server import Truth
from benchmarks.support.timed_upstream import ServerTruth
from mileage.loadgen.planned_call import PlannedCall
from mileage.measure.call_record import CallRecord
from mileage.measure.quantiles import quantile

__all__ = [
    "QUANTILES",
    "expected_through_stall",
    "quantiles",
    "stalled_plan",
    "streamed_plan",
    "true_latencies",
    "whole_plan",
]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
STREAM_EVENTS = 8


def whole_plan(rate: float, duration_s: float, *, seed: int) -> list[PlannedCall]:
    """Whole answers after 1 ms and more: log-normal around 40 ms, with a long tail.

    Its largest delays are far apart, so that one hiccup of the machine does not move the maximum.
    """
    rng = Random(seed)
    orders = [
        f"first_ms={min(5000.0, max(1.0, rng.lognormvariate(math.log(40), 0.9))):.3f}"
        for _ in range(int(rate * duration_s))
    ]
    return _calls(orders, rate, stream=False)


def streamed_plan(rate: float, duration_s: float, *, seed: int) -> list[PlannedCall]:
    """Streams of eight events: the first after 5 ms and more, gaps around 20 ms, exponential."""
    rng = Random(seed)
    orders = []
    for _ in range(int(rate * duration_s)):
        gaps = [rng.expovariate(1 / 20) for _ in range(STREAM_EVENTS - 1)]
        gaps_ms = ",".join(f"{gap:.3f}" for gap in gaps)
        first_ms = 5 + rng.expovariate(1 / 50)
        orders.append(f"first_ms={first_ms:.3f} gaps_ms={gaps_ms}")
    return _calls(orders, rate, stream=True)


def stalled_plan(
    rate: float, duration_s: float, *, delay_s: float, stall_at_s: float, stall_s: float
) -> list[PlannedCall]:
    """Whole answers after the same delay; one call stops the server for so long."""
    orders = [f"first_ms={delay_s * 1000:g}"] * int(rate * duration_s)
    orders[int(stall_at_s * rate)] += f" stall_ms={stall_s * 1000:g}"
    return _calls(orders, rate, stream=False)


def _calls(orders: Iterable[str], rate: float, *, stream: bool) -> list[PlannedCall]:
    return [
        PlannedCall(
            index=index,
            scheduled_s=index / rate,
            path=b"/v1/chat/completions",
            body=chat_request(CHAT_MODEL, stream=stream, usage=stream, user=order),
            stream=stream,
            model=CHAT_MODEL,
        )
        for index, order in enumerate(orders)
    ]


def true_latencies(truths: Iterable[Truth], *, stream: bool) -> dict[str, list[float]]:
    """Each figure's values in seconds, from the server's reading of a request to its writing."""
    found: dict[str, list[float]] = {"e2e_s": []}
    if stream:
        found |= {"ttft_s": [], "itl_s": [], "tpot_s": []}
    for truth in truths:
        first_s, last_s = truth.written_s[0], truth.written_s[-1]
        found["e2e_s"].append(last_s - truth.read_s)
        if stream:
            found["ttft_s"].append(first_s - truth.read_s)
            found["itl_s"] += [
                later - earlier
                for earlier, later in zip(truth.written_s, truth.written_s[1:], strict=False)
            ]
            found["tpot_s"].append((last_s - first_s) / (len(truth.written_s) - 1))
    return found


def expected_through_stall(
    records: Sequence[CallRecord], truth: ServerTruth, *, delay_s: float, zero_s: float
) -> list[float]:
    """Latencies from the schedule by arithmetic alone, of a server that stalled once.

    One that is due before the stall waits for nothing. One whose answer falls into it gets that
    at its end. One that is scheduled within it is read at its end and has its delay from there.
    """
    ((first_s, last_s),) = truth.stalls
    begin_s, end_s = first_s - zero_s, last_s - zero_s
    expected = []
    for record in records:
        due_s = record.scheduled_s
        if begin_s <= due_s < end_s:
            expected.append(end_s - due_s + delay_s)
        elif due_s < begin_s < due_s + delay_s:
            expected.append(max(delay_s, end_s - due_s))
        else:
            expected.append(delay_s)
    return expected


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The quantiles that are compared."""
    found = {}
    for name, q in QUANTILES.items():
        value = quantile(values, q)
        assert value is not None
        found[name] = value
    return found
