"""ReplicaClock: stretches by the monotonic clock, placed by a wall clock that may be set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.replica_clock import ReplicaClock, ReplicaSeen
from mileage.ledger.replica_time import ReplicaTime

S = 10**9
UTC = 1_800_000_000 * S
UP = ReplicaSeen("up", 4.0, "H100-SXM5-80GB")
DOWN = ReplicaSeen("down")


def stretches(rows: list[ReplicaTime]) -> list[tuple[int, int]]:
    """In seconds after the first look."""
    return [((row.from_utc_ns - UTC) // S, (row.until_utc_ns - UTC) // S) for row in rows]


def story(*looks: tuple[int, int]) -> list[tuple[int, int]]:
    """Look at (monotonic, wall) seconds at one replica that is up."""
    clock = ReplicaClock()
    return stretches(
        [row for now, wall in looks for row in clock.look(now * S, UTC + wall * S, {"a": UP})]
    )


def test_the_first_look_says_nothing_about_before() -> None:
    assert ReplicaClock().look(S, UTC, {"a": UP}) == []


def test_a_replica_is_what_it_was_until_the_next_look() -> None:
    clock = ReplicaClock()
    clock.look(0, UTC, {"a": UP, "b": DOWN})
    assert clock.look(5 * S, UTC + 5 * S, {"a": DOWN, "c": UP}) == [
        ReplicaTime("a", UTC, UTC + 5 * S, 4.0, "H100-SXM5-80GB", "up"),
        ReplicaTime("b", UTC, UTC + 5 * S, 1.0, "", "down"),
    ]
    last = clock.look(6 * S, UTC + 6 * S, {})
    assert [(row.replica, row.state) for row in last] == [("a", "down"), ("c", "up")]
    assert clock.look(7 * S, UTC + 7 * S, {}) == []


def test_stretches_follow_each_other() -> None:
    assert story((0, 0), (5, 5), (10, 10)) == [(0, 5), (5, 10)]


def test_a_clock_set_forward_leaves_a_gap() -> None:
    assert story((0, 0), (5, 3605), (10, 3610)) == [(3600, 3605), (3605, 3610)]


def test_a_clock_set_back_tells_no_time_twice() -> None:
    assert story((0, 0), (5, 5), (10, 2), (13, 5), (15, 7), (20, 12)) == [(0, 5), (5, 7), (7, 12)]


def test_a_clock_set_back_by_less_than_a_period_shortens_it() -> None:
    assert story((0, 0), (5, 5), (10, 8), (15, 13)) == [(0, 5), (5, 8), (8, 13)]


def test_a_clock_that_is_slewed_leaves_no_gap() -> None:
    clock = ReplicaClock()
    rows = []
    for n in range(100):
        rows += clock.look(n * 5 * S, UTC + n * (5 * S + 2_500_000), {"a": UP})
    assert all(one.until_utc_ns == two.from_utc_ns for one, two in pairwise(rows))
    assert rows[-1].until_utc_ns - UTC == 99 * (5 * S + 2_500_000)


def test_a_look_that_is_late_covers_the_time_that_it_missed() -> None:
    assert story((0, 0), (3600, 3600)) == [(0, 3600)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20 * S),
            st.one_of(st.integers(-5_000_000, 5_000_000), st.integers(-7200 * S, 7200 * S)),
        ),
        max_size=40,
    )
)
def test_no_clock_makes_rows_overlap_or_more_time_than_passed(looks: list[tuple[int, int]]) -> None:
    """However the wall clock is set: pairs are the monotonic time to the next look, and how far
    the wall clock is moved meanwhile."""
    clock = ReplicaClock()
    now_ns, utc_ns = 0, UTC
    rows = clock.look(now_ns, utc_ns, {"a": UP})
    slack_ns = 0
    for passed_ns, moved_ns in looks:
        now_ns, utc_ns = now_ns + passed_ns, utc_ns + passed_ns + moved_ns
        slack_ns += 250_000_000
        rows += clock.look(now_ns, utc_ns, {"a": UP})
    assert all(row.from_utc_ns < row.until_utc_ns for row in rows)
    assert all(one.until_utc_ns <= two.from_utc_ns for one, two in pairwise(rows))
    assert sum(row.until_utc_ns - row.from_utc_ns for row in rows) <= now_ns + slack_ns
