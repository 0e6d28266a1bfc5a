"""A load curve is what one counts at any moment, and a mean is what one gets by small steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.costmodel.load_curve import LoadCurve
from mileage.costmodel.served import ServedRequest

GRID = 64
"""Times are multiples of this part of a second, and counts are taken in between."""


@st.composite
def answers(draw: st.DrawFn) -> ServedRequest:
    first, gaps = draw(st.integers(0, 200)), draw(st.lists(st.integers(1, 20), min_size=1))
    times = tuple(np.cumsum([first, *gaps]) / GRID)
    return ServedRequest(
        replica="engine",
        dispatched_s=float(times[0]) - 0.5,
        first_s=float(times[0]),
        last_s=float(times[-1]),
        prompt_tokens=draw(st.integers(1, 1000)),
        output_tokens=len(times),
        token_times_s=tuple(map(float, times)),
    )


@given(st.lists(answers(), min_size=1, max_size=12), st.integers(0, 300), st.integers(1, 50))
def test_means_are_those_of_counting(served: list[ServedRequest], begin: int, length: int) -> None:
    curve = LoadCurve(served)
    moments = [(begin + n + 0.5) / GRID for n in range(length)]
    decoding = [[s for s in served if s.token_times_s[0] < at < s.last_s] for at in moments]
    context = [
        sum(s.prompt_tokens + sum(t < at for t in s.token_times_s) for s in now)
        for at, now in zip(moments, decoding, strict=True)
    ]
    start, end = np.array([begin / GRID]), np.array([(begin + length) / GRID])
    count = sum(map(len, decoding)) / length
    assert curve.running(start, end)[0] == pytest.approx(count, abs=1e-6)
    assert curve.context_tokens(start, end)[0] == pytest.approx(sum(context) / length, abs=1e-4)
