"""What an engine says that a request's p99 forgives is what the p99 of its gaps does forgive."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from mileage.sim.long_gaps import LongGaps
from mileage.sim.sequence import Sequence
from mileage.sim.step_timer import gap_figures

TARGET_S = 0.06
LONG_S = 1.0
lengths = st.lists(st.integers(0, 150), min_size=1, max_size=6)


@given(lengths, lengths, st.integers(0, 6), st.randoms(use_true_random=False))
def test_a_long_gap_more_keeps_the_target_where_one_is_spare(
    stretches: list[int], past: list[int], most: int, random: object
) -> None:
    generator = np.random.default_rng(random.randint(0, 2**32))  # type: ignore[attr-defined]
    gaps, steps, begun = LongGaps(TARGET_S), 0, int(generator.integers(0, 100))
    times = []
    for length in stretches:
        each = np.where(generator.random(length) < most / 200, LONG_S, 0.01)
        steps += length
        gaps.took(steps, each)
        times.append(each)
    sequence = Sequence(1, 10, 10_000)
    sequence.first_at = begun = min(begun, steps)
    sequence.past_gaps = [np.where(generator.random(n) < most / 200, LONG_S, 0.01) for n in past]
    own = np.concatenate(times)[begun:]
    (spare,) = gaps.spare([sequence], steps)
    p99_s, _ = gap_figures(np.append(own, LONG_S), sequence.past_gaps, 1.0)
    assert (spare >= 1) == (p99_s <= TARGET_S)
