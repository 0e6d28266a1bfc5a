"""Rings keep their size, gaps stay gaps, and coarse quantiles come from all observations."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.control.governor_state import GovernorState
from mileage.core.replica import ReplicaView
from mileage.core.slo import Slo, SloConfig
from mileage.gateway.admin.rates import Key
from mileage.gateway.admin.series import Ring, SeriesStore
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report
from mileage.measure.metrics import Counter, FamilySnapshot, Histogram


@dataclass
class Worker:
    """A worker that counts, and reports when it is told to."""

    requests: Counter = field(
        default_factory=lambda: Counter("mileage_requests_total", "R.", ("outcome",))
    )
    latency: Histogram = field(
        default_factory=lambda: Histogram(
            "mileage_time_to_first_token_seconds", "T.", (), bounds=(0.1, 1.0, 10.0)
        )
    )

    def report(self, at_s: float, *, in_flight: int = 0) -> Report:
        return Report(
            pid=1,
            at_s=at_s,
            connections=2 * in_flight,
            in_flight=in_flight,
            draining=False,
            ledger_ok=True,
            families=[self.requests.snapshot(), self.latency.snapshot()],
            replicas=[ReplicaStatus(name="a", state="up", models=("m",), in_flight=in_flight)],
        )


def columns(ring: Ring, count: int) -> dict[Key, list[float | None]]:
    return ring.read(count)[1]


def test_a_ring_gives_its_last_points_oldest_first() -> None:
    ring = Ring(1, 4)
    for index in range(10, 17):
        ring.put(index, {("x", None): float(index)})
    assert ring.read(3) == (range(14, 17), {("x", None): [14, 15, 16]})
    assert ring.read(100) == (range(13, 17), {("x", None): [13, 14, 15, 16]})


def test_points_that_were_not_put_are_gaps() -> None:
    ring = Ring(1, 8)
    ring.put(1, {("x", None): 1.0, ("y", None): 5.0})
    ring.put(4, {("x", None): 4.0})
    assert columns(ring, 8) == {("x", None): [1, None, None, 4], ("y", None): [5, None, None, None]}


def test_a_gap_longer_than_the_ring_leaves_nothing_old() -> None:
    ring = Ring(1, 4)
    ring.put(1, {("x", None): 1.0, ("y", "gone"): 1.0})
    ring.put(1_000_000_000, {("x", None): 2.0})
    assert ring.read(4) == (
        range(999_999_997, 1_000_000_001),
        {("x", None): [None, None, None, 2.0]},
    )


def test_columns_are_bounded_and_places_come_free_again() -> None:
    ring = Ring(1, 3, columns_max=2)
    ring.put(0, {("x", "1"): 1.0, ("x", "2"): 1.0, ("x", "3"): 1.0})
    assert ring.dropped == 1
    for index in range(1, 4):
        ring.put(index, {("x", "1"): 1.0})
    ring.put(4, {("x", "1"): 1.0, ("x", "4"): 7.0})
    assert columns(ring, 1) == {("x", "1"): [1.0], ("x", "4"): [7.0]}


def test_an_older_point_is_ignored() -> None:
    ring = Ring(1, 3)
    ring.put(5, {("x", None): 1.0})
    ring.put(4, {("x", None): 9.0})
    assert ring.read(3) == (range(5, 6), {("x", None): [1.0]})


def test_an_empty_ring_has_no_points() -> None:
    assert Ring(1, 3).read(3) == (range(0), {})


def test_a_second_has_rates_quantiles_and_gauges() -> None:
    store, worker = SeriesStore(), Worker()
    for second in range(100, 112):
        worker.requests.add(("ok",), 20)
        worker.latency.observe(0.05, (), 18)
        worker.latency.observe(5.0, (), 2)
        views = [
            ReplicaView(replica="a", observed_s=second - 1.0, running=7, waiting=0),
            ReplicaView(replica="b", observed_s=second - 60.0, running=9, waiting=9),
        ]
        store.sample([worker.report(second - 0.2, in_flight=6)], views, float(second))
    latest = store.latest(1_000.0)
    assert latest is not None
    assert latest.at_utc_s == 1_111.0
    assert latest.values["requests_per_s"] == 20
    assert latest.values["in_flight"] == 6
    assert latest.values["connections"] == 12
    assert latest.values["ttft_p50_s"] == pytest.approx(0.1 * 0.5 / 0.9, rel=1e-3)
    assert 1.0 < (latest.values["ttft_p95_s"] or 0) <= 10.0
    assert latest.groups["requests_per_s"] == [("ok", 20)]
    # b was observed a minute ago: a gap, not nine requests.
    assert latest.groups["running"] == [("a", 7)]
    assert latest.groups["replica_in_flight"] == [("a", 6)]
    assert "kv_cache_usage_ratio" not in latest.groups


@pytest.mark.parametrize(
    ("late", "in_flight"),
    [
        pytest.param(1, [5, 9], id="in time"),
        pytest.param(2, [5, 9, 9], id="a second missed"),
        pytest.param(4, [5, 9, 9, 9, 9], id="as late as may be"),
        pytest.param(5, [5, None, None, None, None, 9], id="too late: a gap"),
    ],
)
def test_a_sample_that_is_a_little_late_stands_for_the_seconds_it_missed(
    late: int, in_flight: list[float | None]
) -> None:
    store, worker = SeriesStore(), Worker()
    store.sample([worker.report(9.9, in_flight=5)], [], 10.0)
    store.sample([worker.report(9.9 + late, in_flight=9)], [], 10.2 + late)
    assert store.read(60, 0.0).values["in_flight"] == in_flight


def test_nothing_seen_is_nothing_told() -> None:
    store = SeriesStore()
    assert store.latest(0.0) is None
    store.sample([], [], 5.0)
    latest = store.latest(0.0)
    assert latest is not None
    assert (latest.values, latest.groups) == ({}, {})
    document = store.read(60, 0.0)
    assert (document.times_utc_s, document.values) == ([5.0], {})


def test_latency_without_a_token_is_a_gap_not_zero() -> None:
    store, worker = SeriesStore(), Worker()
    for second in range(30):
        if second == 5:
            worker.latency.observe(0.05)
        store.sample([worker.report(float(second))], [], float(second))
    document = store.read(30, 0.0)
    p50 = document.values["ttft_p50_s"]
    assert p50[4] is None
    assert p50[5] == pytest.approx(0.05)
    assert p50[-1] is None
    assert document.values["requests_per_s"][-1] == 0
    assert document.ceilings == {"ttft_s": 10.0}


def test_a_coarse_quantile_is_of_all_observations_not_a_mean_of_quantiles() -> None:
    store, worker = SeriesStore(levels=((1, 60), (10, 10))), Worker()
    for second in range(20):
        slow = second == 19
        worker.latency.observe(5.0 if slow else 0.05, (), 100 if slow else 1)
        store.sample([worker.report(float(second))], [], float(second))
    fine = [p50 for p50 in store.read(20, 0.0, step_s=1).values["ttft_p50_s"][10:] if p50]
    document = store.read(60, 0.0, step_s=10)
    assert document.times_utc_s == [0.0, 10.0]
    assert sum(fine) / len(fine) < 1.0
    # 100 of the span's 109 observations lie in the bucket above one second.
    assert 1.0 < (document.values["ttft_p50_s"][1] or 0) <= 10.0


def slo_counts(met: int, missed: int) -> FamilySnapshot:
    counter = Counter("mileage_slo_requests_total", "S.", ("model", "target", "met"))
    counter.add(("m", "all", "yes"), met)
    counter.add(("m", "all", "no"), missed)
    return counter.snapshot()


def test_a_coarse_share_is_of_all_requests_not_a_mean_of_shares() -> None:
    store, worker = SeriesStore(levels=((1, 60), (10, 10))), Worker()
    met, missed = 1, 1
    for second in range(20):
        met, missed = (met, missed + 90) if second == 15 else (met + 1, missed)
        report = worker.report(float(second))
        report = msgspec.structs.replace(report, families=[slo_counts(met, missed)])
        store.sample([report], [], float(second))
    (coarse,) = store.read(60, 0.0, step_s=10).groups["targets_met_ratio"]
    assert coarse.label == "all"
    # 9 of the second span's 99 met their targets; the mean of its seconds would be 0.9.
    assert coarse.values == [1.0, pytest.approx(9 / 99, rel=1e-4)]
    (fine,) = store.read(20, 0.0, step_s=1).groups["targets_met_ratio"]
    assert fine.values[0] is None
    assert fine.values[14] == 1


def governed(pid: int, held: int, limit: float | None) -> Report:
    replica = ReplicaStatus(name="a", state="up", models=("m",), in_flight=1, limit=limit)
    state = GovernorState(
        mode="act",
        policy="model",
        held=held,
        held_by_tenant={},
        held_total=held,
        refused_total={},
        would_hold_total=0,
        would_refuse_total=0,
        waiting={"a": held},
        decisions=[],
    )
    slo = SloConfig(ttft_s=2.0, models={"m": Slo(itl_s=0.05)})
    return msgspec.structs.replace(
        Worker().report(10.0),
        pid=pid,
        replicas=[replica],
        governor=GovernorReport(state=state, slo=slo),
    )


def test_a_second_has_what_is_held_the_limits_and_the_targets() -> None:
    store = SeriesStore()
    store.sample([governed(1, 3, 4.5), governed(2, 2, 3.5)], [], 10.0)
    latest = store.latest(0.0)
    assert latest is not None
    assert (latest.values["held"], latest.values["ttft_target_s"]) == (5, 2.0)
    assert "itl_target_s" not in latest.values
    assert latest.groups["held"] == [("a", 5)]
    # Each worker's part of the limit makes the whole of it.
    assert latest.groups["limit"] == [("a", 8)]
    assert latest.groups["itl_target_s"] == [("m", 0.05)]
    store.sample([governed(1, 0, None)], [], 11.0)
    latest = store.latest(0.0)
    assert latest is not None
    assert "limit" not in latest.groups


@given(
    points=st.integers(1, 6),
    steps=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=40),
)
def test_a_ring_is_a_window_over_all_points_ever_put(
    points: int, steps: list[tuple[int, str]]
) -> None:
    ring, index = Ring(1, points), 0
    every: dict[tuple[str, int], float] = {}
    first = steps[0][0] if steps else 0
    for number, (ahead, label) in enumerate(steps):
        index += ahead
        every[label, index] = float(number)
        ring.put(index, {("x", label): float(number)})
    indices, found = ring.read(points)
    expected = range(max(first, index - points + 1), index + 1) if steps else range(0)
    assert indices == expected
    for label in "ab":
        column = [every.get((label, each)) for each in expected]
        assert found.get(("x", label), [None] * len(expected)) == column


def test_a_coarse_gauge_is_the_mean_of_its_seconds() -> None:
    store, worker = SeriesStore(levels=((1, 60), (10, 10))), Worker()
    for second in range(20):
        store.sample([worker.report(float(second), in_flight=second)], [], float(second))
    document = store.read(20, 0.0, step_s=10)
    assert document.values["in_flight"] == [4.5, 14.5]


@pytest.mark.parametrize(
    ("window_s", "step_s"),
    [
        pytest.param(1, 1, id="a second"),
        pytest.param(900, 1, id="a quarter of an hour: seconds"),
        pytest.param(3_600, 10, id="an hour: too many seconds for one answer"),
        pytest.param(21_600, 60, id="six hours: past what the middle level keeps"),
        pytest.param(86_400, 60, id="a day: minutes"),
    ],
)
def test_the_finest_level_that_covers_the_window_is_chosen(window_s: int, step_s: int) -> None:
    assert SeriesStore().read(window_s, 0.0).step_s == step_s


def test_a_step_that_no_level_has_is_refused() -> None:
    with pytest.raises(KeyError):
        SeriesStore().read(60, 0.0, step_s=7)
