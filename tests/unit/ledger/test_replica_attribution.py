"""ReplicaAttribution: by steps, by token times, by first and last tokens, by the meter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import pytest

from mileage.core.timeline import RequestTimeline
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.replica_attribution import ReplicaAttribution
from mileage.ledger.window_shares import WindowShares
from tests.support.attributed_engine import NS, START_NS, EngineRun, asks, run_engine

WINDOW_NS = 20 * NS
LENGTH_S = 200.0
CONFIG = AttributionConfig()


@pytest.fixture(scope="module")
def engine() -> EngineRun:
    return run_engine(asks(3, LENGTH_S))


def blank(request: RequestTimeline, *fields: str) -> RequestTimeline:
    return msgspec.structs.replace(
        request, **{field: () if field == "token_times" else None for field in fields}
    )


def attributed(
    told: Sequence[RequestTimeline],
    steps: Sequence[EngineStep] = (),
    *,
    attribution: ReplicaAttribution | None = None,
    windows: range = range(int(LENGTH_S) // 20),
    busy_ns: int | None = None,
    step_count: int | None = None,
) -> list[WindowShares]:
    attribution = attribution or ReplicaAttribution("r", CONFIG)
    found = []
    for number in windows:
        begin, end = START_NS + number * WINDOW_NS, START_NS + (number + 1) * WINDOW_NS
        seen = [
            s
            for s in steps
            if s.started_at_utc_ns < end and s.started_at_utc_ns + s.duration_ns > begin
        ]
        there = [
            r
            for r in told
            if r.arrived_at_utc_ns < end
            and r.arrived_at_utc_ns + round((r.finished_s or 0.0) * NS) > begin
        ]
        found.append(
            attribution.window(
                begin, end, gpus=2.0, up_ns=WINDOW_NS, warmup_ns=0, requests=there, steps=seen,
                busy_ns=busy_ns, step_count=step_count,
            )
        )  # fmt: skip
    return found


def by_tenant(found: Sequence[WindowShares], told: Sequence[RequestTimeline]) -> dict[str, float]:
    tenants = {r.id: r.tenant for r in told}
    totals: dict[str, float] = defaultdict(float)
    for window in found:
        for share in window.shares:
            totals[tenants[share.request_id]] += share.gpu_ns
    return dict(totals)


def test_busy_time_by_steps_is_that_of_the_steps(engine: EngineRun) -> None:
    found = attributed(engine.timelines, engine.steps)
    end_ns = START_NS + len(found) * WINDOW_NS
    busy_ns = sum(
        max(0, min(end_ns, s.started_at_utc_ns + s.duration_ns) - s.started_at_utc_ns)
        for s in engine.steps
    )
    assert {window.basis for window in found} == {"steps"}
    assert sum(s.gpu_ns for window in found for s in window.shares) == 2 * busy_ns


@pytest.mark.parametrize(
    ("basis", "lacking", "most"),
    [
        pytest.param("token_times", (), 0.01, id="the time of every token: within 1 %"),
        pytest.param("token_times", ("cached_tokens",), 0.02, id="no cached tokens told: 2 %"),
        pytest.param("first_last", ("token_times",), 0.06, id="first and last token: 6 %"),
        pytest.param(
            "first_last", ("token_times", "cached_tokens"), 0.08, id="and no cached tokens: 8 %"
        ),
    ],
)
def test_an_estimate_agrees_with_the_steps(
    engine: EngineRun, basis: str, lacking: tuple[str, ...], most: float
) -> None:
    told = [blank(request, *lacking) for request in engine.timelines]
    truth = by_tenant(attributed(engine.timelines, engine.steps), told)
    found = attributed(told)
    assert [window.basis for window in found[1:]] == [basis] * (len(found) - 1)
    for tenant, gpu_ns in by_tenant(found, told).items():
        assert gpu_ns == pytest.approx(truth[tenant], rel=most)


@pytest.mark.parametrize("lacking", [(), ("token_times",)], ids=["token times", "first and last"])
def test_intervals_have_the_truth_in_19_of_20_windows(
    engine: EngineRun, lacking: tuple[str, ...]
) -> None:
    truth = attributed(engine.timelines, engine.steps)
    inside = []
    for window, true in zip(
        attributed([blank(r, *lacking) for r in engine.timelines])[1:], truth[1:], strict=True
    ):
        exact = {share.request_id: share.gpu_ns for share in true.shares}
        inside += [s.low_ns <= exact.get(s.request_id, 0) <= s.high_ns for s in window.shares]
    assert sum(inside) >= 0.95 * len(inside)


def test_totals_of_the_engine_are_the_busy_time(engine: EngineRun) -> None:
    told = [blank(request, "token_times") for request in engine.timelines]
    found = attributed(told, busy_ns=7 * NS, step_count=300)
    assert {window.basis for window in found} == {"step_totals"}
    assert {sum(s.gpu_ns for s in window.shares) for window in found} == {14 * NS}


def test_answers_that_are_not_streamed_are_metered(engine: EngineRun) -> None:
    told = [blank(request, "token_times", "first_token_s") for request in engine.timelines]
    assert {window.basis for window in attributed(told)} == {"meter"}


def test_a_restart_goes_on_with_what_was_learned(engine: EngineRun) -> None:
    whole = attributed(engine.timelines)
    before = ReplicaAttribution("r", CONFIG)
    attributed(engine.timelines, attribution=before, windows=range(5))
    after = ReplicaAttribution("r", CONFIG)
    after.restore(before.state())
    assert attributed(engine.timelines, attribution=after, windows=range(5, 10)) == whole[5:]


def test_a_state_that_cannot_be_read_is_learned_again() -> None:
    attribution = ReplicaAttribution("r", CONFIG)
    attribution.restore(b"of another version")
    assert attribution.state() == ReplicaAttribution("r", CONFIG).state()


def test_saturation_shows_as_answers_that_stand_still(engine: EngineRun) -> None:
    def stalled(request: RequestTimeline) -> RequestTimeline:
        """Its second half comes 3 s later, as if it was preempted."""
        times = list(request.token_times)
        for index in range(len(times) // 4 * 2, len(times), 2):
            times[index] += 3_000_000
        end_s = times[-2] / 1e6
        return msgspec.structs.replace(
            request, token_times=tuple(times), last_token_s=end_s, finished_s=end_s
        )

    plain = attributed(engine.timelines)
    assert not any(window.saturated for window in plain)
    told = [stalled(r) if r.tenant == "short" and r.id % 640 == 0 else r for r in engine.timelines]
    assert any(window.saturated for window in attributed(told))


def request(identity: int, **fields: object) -> RequestTimeline:
    known: dict[str, object] = {
        "id": identity,
        "tenant": "a",
        "model": "m",
        "endpoint": "chat",
        "stream": True,
        "arrived_at_utc_ns": START_NS,
        "outcome": "ok",
        "status": 200,
        "dispatched_s": 0.0,
        "first_token_s": 1.0,
        "last_token_s": 4.0,
        "finished_s": 4.0,
        "prompt_tokens": 100,
        "output_tokens": 50,
    }
    return msgspec.convert(known | fields, RequestTimeline)


def window(told: Sequence[RequestTimeline], steps: Sequence[EngineStep] = ()) -> dict[int, int]:
    found = ReplicaAttribution("r", CONFIG).window(
        START_NS, START_NS + WINDOW_NS, gpus=1.0, up_ns=WINDOW_NS, warmup_ns=0,
        requests=told, steps=steps,
    )  # fmt: skip
    return {share.request_id: share.gpu_ns for share in found.shares}


def test_a_shared_generation_is_paid_by_the_time_that_each_was_with_it() -> None:
    led = request(64)
    joined = request(
        128,
        arrived_at_utc_ns=START_NS + 2 * NS,
        last_token_s=2.0,
        finished_s=2.0,
        merged_into=64,
    )
    step = EngineStep("r", START_NS, 4 * NS, (StepUse(64, 0, 1, 100),))
    # 4 s with it against 2 s.
    assert window([led, joined], [step]) == {64: 2666666667, 128: 1333333333}
    both = window([led, joined])
    assert both[64] == pytest.approx(2 * both[128], abs=2)
    assert sum(both.values()) == 4 * NS


def test_a_batch_of_embeddings_is_paid_by_tokens() -> None:
    told = [
        request(64, endpoint="embeddings", prompt_tokens=300, output_tokens=None),
        request(128, endpoint="embeddings", prompt_tokens=100, output_tokens=None, merged_into=64),
    ]
    found = window(told)
    assert found[64] == 3 * found[128]


def test_who_was_never_sent_pays_nothing() -> None:
    told = [
        request(64),
        request(128, outcome="rejected", dispatched_s=None),
        request(192, outcome="lost", dispatched_s=None, finished_s=None),
    ]
    assert window(told) == {64: 4 * NS}


def test_who_left_pays_up_to_the_end() -> None:
    told = [request(64), request(128, outcome="cancelled", last_token_s=None, finished_s=1.5)]
    found = window(told)
    assert 0 < found[128] < found[64]
    assert sum(found.values()) == 4 * NS


def test_work_of_requests_that_nobody_knows_keeps_the_id_of_the_step() -> None:
    steps = [EngineStep("r", START_NS, NS, (StepUse(7, 100, 0, 0),))]
    assert window([], steps) == {7: NS}


def test_recomputed_tokens_are_told_apart() -> None:
    found = ReplicaAttribution("r", CONFIG).window(
        START_NS, START_NS + WINDOW_NS, gpus=1.0, up_ns=WINDOW_NS, warmup_ns=0, requests=[],
        steps=[EngineStep("r", START_NS, NS, (StepUse(64, 400, 0, 0, 300),))],
    )  # fmt: skip
    share = found.shares[0]
    assert (share.gpu_ns, share.prefill_ns, share.recomputed_ns) == (NS, NS, NS * 3 // 4)


@pytest.mark.parametrize(
    ("up_ns", "warmup_ns", "idle_ns", "warm_ns"),
    [
        pytest.param(WINDOW_NS, 0, 19 * NS, 0, id="idle is what is left"),
        pytest.param(WINDOW_NS, 5 * NS, 14 * NS, 5 * NS, id="warm-up is no idle time"),
        pytest.param(NS // 2, 0, 0, 0, id="no more than there was: the steps give way"),
        pytest.param(2 * NS, 2 * NS, 0, NS, id="steps are seen, warm-up is sampled"),
        pytest.param(0, 0, 0, 0, id="a replica that was down has nothing"),
    ],
)
def test_idle_and_warm_up_are_accounts_of_their_own(
    up_ns: int, warmup_ns: int, idle_ns: int, warm_ns: int
) -> None:
    step = EngineStep("r", START_NS, NS, (StepUse(64, 100, 0, 0),))
    found = ReplicaAttribution("r", CONFIG).window(
        START_NS, START_NS + WINDOW_NS, gpus=1.0, up_ns=up_ns, warmup_ns=warmup_ns, requests=[],
        steps=[step],
    )  # fmt: skip
    assert (found.idle_ns, found.warmup_ns) == (idle_ns, warm_ns)
