"""Idle models: whatever pauses come, keeping them is at most twice as dear as to know all."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mileage.policy.residency.idle import IdleGaps
from mileage.policy.residency.room import Resident, make_room

GAPS = st.lists(st.one_of(st.floats(0.0, 1e4), st.sampled_from([0.0, 99.0, 101.0])), max_size=150)


@given(gaps=GAPS, load_cost_s=st.floats(0.0, 1e4))
def test_never_more_than_twice_the_optimum_and_one_break_even(
    gaps: list[float], load_cost_s: float
) -> None:
    known = IdleGaps()
    for gap_s in gaps:
        keep_s = known.keep_s(load_cost_s)
        assert keep_s >= 0.0
        known.ended(gap_s, keep_s, load_cost_s)
        assert known.paid_s <= 2.0 * known.optimum_s + load_cost_s + 1e-6 * (1.0 + known.paid_s)


@given(fooled=st.lists(st.booleans(), max_size=150), offset_s=st.floats(0.0, 1.0))
def test_who_knows_our_times_cannot_do_worse_to_us(fooled: list[bool], offset_s: float) -> None:
    known = IdleGaps()
    for too_late in fooled:
        keep_s = known.keep_s(100.0)
        gap_s = keep_s + offset_s if too_late else max(0.0, keep_s - offset_s)
        known.ended(gap_s, keep_s, 100.0)
        assert known.paid_s <= 2.0 * known.optimum_s + 100.0 + 1e-6 * (1.0 + known.paid_s)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.floats(0.0, 1e5)), max_size=8),
    missing=st.integers(0, 300),
)
def test_room_is_made_where_it_can_be_and_no_more_than_that(
    sizes: list[tuple[int, float]], missing: int
) -> None:
    residents = {
        f"m{number}": Resident(
            name=f"m{number}", memory_bytes=size, idle_s=idle_s, load_cost_s=100.0
        )
        for number, (size, idle_s) in enumerate(sizes)
    }
    going = make_room(residents.values(), missing)
    if going is None:
        assert sum(size for size, _ in sizes) < missing
        return
    freed = sum(residents[name].memory_bytes for name in going)
    assert freed >= missing
    assert all(freed - residents[name].memory_bytes < missing for name in going)
