"""Attribution: whatever it is told, every nanosecond is somebody's, idle or warm-up, and once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.timeline import Outcome, RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.window_shares import WindowShares

NS = 1_000_000_000
WINDOW_NS = 20 * NS
START_NS = 1_700_000_000 * NS

outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    ("ok", "ok", "ok", "failed", "cancelled", "rejected", "lost")
)
offsets = st.none() | st.floats(0.0, 40.0)
counts = st.none() | st.integers(0, 20_000)


@st.composite
def timelines(draw: st.DrawFn, identity: int) -> RequestTimeline:
    """Anything that a record may hold, also where it makes no sense: an end before the start, a
    clock that stepped back, tokens nobody counted."""
    first = draw(st.integers(0, 2_000_000))
    gaps = draw(st.lists(st.integers(0, 200_000), max_size=12))
    times: list[int] = []
    for gap in gaps:
        first += gap
        times += [first, draw(st.integers(1, 4))]
    return RequestTimeline(
        id=64 * identity,
        tenant=draw(st.sampled_from("abc")),
        model="m",
        endpoint=draw(st.sampled_from(("chat", "completions", "embeddings"))),
        stream=True,
        # A clock that jumps: an hour back, or ahead.
        arrived_at_utc_ns=START_NS
        + draw(st.integers(-10 * NS, 70 * NS))
        + draw(st.sampled_from((0, 0, 0, 0, -3600 * NS, 3600 * NS))),
        outcome=draw(outcomes),
        status=200,
        replica="r",
        dispatched_s=draw(offsets),
        first_token_s=draw(offsets),
        last_token_s=draw(offsets),
        finished_s=draw(offsets),
        prompt_tokens=draw(counts),
        cached_tokens=draw(counts),
        output_tokens=draw(counts),
        itl_max_s=draw(offsets),
        token_times=tuple(times) if draw(st.booleans()) else (),
        merged_into=64 * draw(st.integers(1, 12)) if draw(st.integers(0, 3)) == 0 else None,
    )


@st.composite
def requests(draw: st.DrawFn) -> list[RequestTimeline]:
    count = draw(st.integers(0, 12))
    return [draw(timelines(identity)) for identity in range(1, count + 1)]


uses = st.builds(
    StepUse,
    st.integers(1, 14).map(lambda identity: 64 * identity),
    st.integers(-5, 5000),
    st.integers(-2, 5),
    st.integers(0, 40_000),
    st.integers(0, 6000),
)
steps = st.lists(
    st.builds(
        EngineStep,
        st.just("r"),
        st.integers(-5 * NS, 65 * NS).map(lambda after: START_NS + after),
        st.integers(-NS, 30 * NS),
        st.lists(uses, max_size=5).map(tuple),
    ),
    max_size=12,
)
clusters = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from((0.14, 0.5, 1.0, 3.7, 8.0, 72.0)),
        "up_ns": st.sampled_from((0, 1, 7 * NS + 3, WINDOW_NS, 2 * WINDOW_NS)),
        "warmup_ns": st.sampled_from((0, 0, 0, 5 * NS, WINDOW_NS)),
        "counters": st.none()
        | st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    }
)
totals = st.fixed_dictionaries(
    {
        "busy_ns": st.none() | st.integers(-NS, 30 * NS),
        "step_count": st.none() | st.integers(0, 10_000),
    }
)


def check(shares: WindowShares, told: Sequence[RequestTimeline], exact: bool) -> None:
    given_ns = sum(share.gpu_ns for share in shares.shares)
    assert given_ns + shares.idle_ns + shares.warmup_ns == shares.capacity_ns
    assert shares.idle_ns >= 0
    assert shares.warmup_ns >= 0
    ids = [share.request_id for share in shares.shares]
    assert len(set(ids)) == len(ids)
    for share in shares.shares:
        assert 0 <= share.recomputed_ns <= share.prefill_ns <= share.gpu_ns
        assert 0 <= share.low_ns <= share.gpu_ns <= share.high_ns
        if exact:
            assert share.low_ns == share.gpu_ns == share.high_ns
    if not exact:
        never_sent = {r.id for r in told if r.outcome == "rejected" or r.dispatched_s is None}
        assert not never_sent & set(ids)


def run(
    windows: Sequence[dict[str, Any]],
    told: Sequence[RequestTimeline],
    seen: Sequence[EngineStep],
    *,
    restart_after: int | None = None,
) -> list[WindowShares]:
    attribution = ReplicaAttribution("r", AttributionConfig())
    found = []
    for number, window in enumerate(windows):
        begin = START_NS + number * WINDOW_NS
        found.append(
            attribution.window(begin, begin + WINDOW_NS, requests=told, steps=seen, **window)
        )
        if number == restart_after:
            state = attribution.state()
            attribution = ReplicaAttribution("r", AttributionConfig())
            attribution.restore(state)
            assert attribution.state() == state
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(clusters, min_size=1, max_size=3), requests(), steps, st.integers(0, 2))
def test_steps_are_shared_out_to_the_nanosecond(
    windows: list[dict[str, Any]],
    told: list[RequestTimeline],
    seen: list[EngineStep],
    restart_after: int,
) -> None:
    for shares in run(windows, told, seen, restart_after=restart_after):
        check(shares, told, exact=shares.basis == "steps")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(clusters, totals), min_size=1, max_size=3), requests(), st.integers(0, 2))
def test_estimates_are_shared_out_to_the_nanosecond(
    windows: list[tuple[dict[str, Any], dict[str, Any]]],
    told: list[RequestTimeline],
    restart_after: int,
) -> None:
    whole = [{**one, **other} for one, other in windows]
    for shares in run(whole, told, (), restart_after=restart_after):
        check(shares, told, exact=False)


@settings(max_examples=50, deadline=None)
@given(st.lists(clusters, min_size=1, max_size=2), requests(), steps, st.randoms())
def test_the_order_of_what_is_told_changes_nothing(
    windows: list[dict[str, Any]],
    told: list[RequestTimeline],
    seen: list[EngineStep],
    random: Any,
) -> None:
    once = run(windows, told, seen)
    again = run(windows, random.sample(told, len(told)), seen)
    assert once == again
