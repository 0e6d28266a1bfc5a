"""RunSeries: columns by the second add up to what the run had."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.measure.run_series import in_flight, run_series
from tests.support.call_records import answer, streamed


def test_each_second_tells_what_came_in_it() -> None:
    records = [
        streamed([0.5, 1.5, 1.75], scheduled_s=0.25, taken_s=0.5, output_tokens=6),
        answer(1.0, 2.5, output_tokens=10),
        answer(1.5, 2.0, outcome="timeout"),
        answer(2.0, 2.25, outcome="cancelled"),
    ]

    found = run_series(records, start_s=0.0, end_s=3.0)

    assert found.second_s == [0.0, 1.0, 2.0]
    assert (found.arrivals, found.done) == ([1, 2, 1], [0, 1, 1])
    assert (found.failed, found.cancelled) == ([0, 0, 1], [0, 0, 1])
    assert found.in_flight == pytest.approx([0.75, 0.75 + 1.0 + 0.5, 0.5 + 0.25])
    assert found.output_tokens == pytest.approx([2.0, 4.0, 10.0])
    assert found.ttft_p50_s == [0.25, None, None]
    assert found.e2e_p99_s == [1.5, 1.5, None]
    assert (found.itl_p50_s, found.itl_p99_s) == ([None, 0.25, None], [None, 1.0, None])
    assert found.lag_max_s == [0.25, None, None]


def test_a_run_without_requests_has_columns_all_the_same() -> None:
    found = run_series([], start_s=0.0, end_s=2.5)

    assert found.arrivals == [0, 0, 0]
    assert found.in_flight == [0.0, 0.0, 0.0]
    assert found.ttft_p50_s == [None, None, None]


def test_a_request_without_an_end_stays_in_flight() -> None:
    assert run_series([answer(0.5, None)], start_s=0.0, end_s=2.0).in_flight == [0.5, 1.0]


def test_a_time_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="steps"):
        run_series([], start_s=0.0, end_s=0.0)


@given(
    st.lists(
        st.tuples(st.integers(-50, 100), st.one_of(st.none(), st.integers(0, 80))), max_size=25
    )
)
def test_time_in_flight_is_that_of_each_request_added_up(
    spans: list[tuple[int, int | None]],
) -> None:
    begun = np.array([a / 8 for a, _ in spans])
    ended = np.array([np.nan if n is None else (a + n) / 8 for a, n in spans])

    found = in_flight(begun, ended, 1.0, 0.5, 12)

    for step, mean in enumerate(found):
        low, high = 1.0 + step * 0.5, 1.5 + step * 0.5
        whole = sum(
            max(0.0, min(high, high if np.isnan(b) else b) - max(low, a))
            for a, b in zip(begun, ended, strict=True)
        )
        assert mean == pytest.approx(whole / 0.5, abs=1e-9)
