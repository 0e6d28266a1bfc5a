"""The shares of GPU time sum to the busy time, exactly, and follow processor sharing."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from mileage.control.gpu_meter import GpuMeter, split

Flights = list[tuple[int, int, int]]
"""Start and length in microseconds, weight."""

flights = st.lists(
    st.tuples(st.integers(0, 10_000_000), st.integers(0, 10_000_000), st.integers(1, 1_000_000)),
    min_size=1,
    max_size=20,
)


def measured(found: Flights, gpus: float) -> tuple[list[int], int]:
    """The shares, and the busy time: of the union of all the intervals."""
    meter = GpuMeter(gpus)
    events = sorted(
        [(start, 1, i) for i, (start, _, _) in enumerate(found)]
        + [(start + length, 2, i) for i, (start, length, _) in enumerate(found)]
    )
    marks: dict[int, int] = {}
    shares = [0] * len(found)
    busy_ns = now_ns = in_flight = 0
    for at_us, kind, i in events:
        passed_ns = int(at_us / 1e6 * 1e9) - now_ns
        now_ns += passed_ns
        busy_ns += passed_ns if in_flight else 0
        in_flight += 1 if kind == 1 else -1
        if kind == 1:
            marks[i] = meter.start(found[i][2], at_us / 1e6)
        else:
            shares[i] = meter.end(found[i][2], marks[i], at_us / 1e6)
        assert sum(shares) <= busy_ns * gpus + 0.5
        if not in_flight:
            assert abs(sum(shares) - busy_ns * gpus) <= 0.5
    return shares, busy_ns


@given(flights, st.sampled_from([0.25, 1.0, 3.0, 8.0]))
def test_shares_sum_to_the_busy_time_exactly(found: Flights, gpus: float) -> None:
    shares, busy_ns = measured(found, gpus)
    assert all(share >= 0 for share in shares)
    # To the nearest nanosecond: a fraction of a GPU has some of its own.
    assert abs(sum(shares) - Fraction(busy_ns) * Fraction(gpus)) <= Fraction(1, 2)


@given(flights)
def test_shares_are_those_of_processor_sharing(found: Flights) -> None:
    shares, _ = measured(found, 1.0)
    exact = [Fraction(0)] * len(found)
    ends = sorted({t for start, length, _ in found for t in (start, start + length)})
    for begin, end in pairwise(ends):
        there = [i for i, (s, n, _) in enumerate(found) if s <= begin and end <= s + n]
        weights = sum(found[i][2] for i in there)
        for i in there:
            exact[i] += Fraction((end - begin) * 1000 * found[i][2], weights)
    # A nanosecond of rounding at each event, at most (times come as floats).
    for share, true in zip(shares, exact, strict=True):
        assert abs(share - true) <= 4 * len(found)


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**9), min_size=1).filter(any))
def test_parts_sum_to_the_whole_and_are_no_unit_off(amount: int, weights: list[int]) -> None:
    parts = split(amount, weights)
    assert sum(parts) == amount
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(amount * weight, sum(weights))) < 1


@given(flights, st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 10**9)), max_size=8))
def test_with_others_the_shares_are_their_part_of_the_time(
    found: Flights, others: list[tuple[int, int]]
) -> None:
    """`others`: the time in microseconds from which on they have so much weight."""
    meter = GpuMeter()
    changes = sorted(others, key=lambda change: change[0])
    events = sorted(
        [(start, 1, i) for i, (start, _, _) in enumerate(found)]
        + [(start + length, 2, i) for i, (start, length, _) in enumerate(found)]
        + [(at, 0, i) for i, (at, _) in enumerate(changes)]
    )
    marks: dict[int, int] = {}
    shares = now_ns = own = theirs = 0
    exact = Fraction(0)
    for at_us, kind, i in events:
        passed_ns = int(at_us / 1e6 * 1e9) - now_ns
        now_ns += passed_ns
        if own:
            exact += Fraction(passed_ns * own, own + theirs)
        if kind == 0:
            theirs = changes[i][1]
            meter.set_others(theirs, at_us / 1e6)
        elif kind == 1:
            own += found[i][2]
            marks[i] = meter.start(found[i][2], at_us / 1e6)
        else:
            own -= found[i][2]
            shares += meter.end(found[i][2], marks[i], at_us / 1e6)
    # The clock's step is 2**-32 ns of a weight: what it leaves over is less than a nanosecond.
    assert abs(shares - exact) <= 1 + len(changes)
