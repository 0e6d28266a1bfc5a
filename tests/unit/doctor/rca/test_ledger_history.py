"""LedgerHistory: series out of requests."""

from __future__ import annotations

from typing import Any

from mileage.core.timeline import RequestTimeline
from mileage.doctor.rca.ledger_history import LedgerHistory, step_for
from mileage.doctor.rca.series import History

START_S = 1_800_000_000


def request(at_s: float, **changes: Any) -> RequestTimeline:
    """One that arrived so many seconds after the start."""
    arrived_ns = round((START_S + at_s) * 1e9)
    fields: dict[str, Any] = {
        "id": (arrived_ns // 1000) << 6,
        "tenant": "x",
        "model": "m",
        "endpoint": "chat",
        "stream": True,
        "arrived_at_utc_ns": arrived_ns,
        "outcome": "ok",
        "status": 200,
        "replica": "a",
        "first_token_s": 0.2,
        "itl_mean_s": 0.02,
        "prompt_tokens": 100,
        "output_tokens": 50,
    }
    return RequestTimeline(**{**fields, **changes})


def history(*requests: RequestTimeline, points: int = 4) -> History:
    """Points of ten seconds."""
    rows = LedgerHistory(START_S, START_S + 10 * points, 10.0)
    for each in requests:
        rows.add(each)
    return rows.history(since_utc_s=START_S)


def values(found: History, node: str, name: str) -> list[float | None]:
    """Of one series, rounded."""
    row = next(s.values for s in found.series if (s.node, s.name) == (node, name))
    return [None if value is None else round(value, 9) for value in row]


def test_rates_and_medians_of_each_point() -> None:
    found = history(
        *[request(at, first_token_s=0.1 * (at + 1)) for at in range(3)],
        request(12, outcome="failed", first_token_s=None),
        request(35),
    )
    assert values(found, "gateway", "requests_per_s") == [0.3, 0.1, 0.0, 0.1]
    assert values(found, "tenant:x", "ttft_p50_s") == [0.2, None, None, None]
    assert values(found, "replica:a", "failed_ratio") == [0.0, 1.0, None, 0.0]
    assert values(found, "gateway", "prompt_tokens_mean") == [100.0, 100.0, None, 100.0]
    assert values(found, "gateway", "decode_tokens_per_s") == [
        50.0,
        None,
        None,
        None,
    ]


def test_before_the_first_request_and_after_the_last_nothing_is_known() -> None:
    found = history(request(11), request(21), points=4)
    assert values(found, "gateway", "requests_per_s") == [None, 0.1, 0.1, None]


def test_requests_that_shared_an_answer_have_no_tokens_of_their_own() -> None:
    found = history(request(0), request(1, merged_into=7))
    assert values(found, "gateway", "output_tokens_per_s")[0] == 5.0


def test_requests_outside_the_time_are_left_out() -> None:
    rows = LedgerHistory(START_S, START_S + 20, 10.0)
    rows.add(request(-1))
    rows.add(request(20))
    assert rows.requests == 0
    assert rows.history(since_utc_s=START_S).series == ()


def test_a_clock_that_was_set_back_is_told_once() -> None:
    late = (round((START_S + 30) * 1e6)) << 6
    found = history(request(0), request(5, id=late), request(6, id=late + 64))
    assert [event.kind for event in found.events] == ["clock"]
    assert found.notes == ("the clock was set back 1 times",)


def test_few_requests_make_long_points_and_many_short_ones() -> None:
    assert step_for(6 * 3600, 1_000_000) == 60.0
    assert step_for(6 * 3600, 500) == 300.0
    assert step_for(3600, 100_000) == 10.0
    assert step_for(30 * 86_400, 10) == 3600.0
