"""The benchmark of fitted engines: errors are of the medians, either way."""

from __future__ import annotations

import pytest

from benchmarks.fitted import BARS, compared
from benchmarks.support.calls import Call


def call(ttft_s: float, gaps_s: tuple[float, ...]) -> Call:
    made = Call(1.0, b"", 10, len(gaps_s) + 1)
    made.first_s = 1.0 + ttft_s
    times = [made.first_s]
    for gap_s in gaps_s:
        times.append(times[-1] + gap_s)
    made.note_times(times)
    return made


def test_errors_are_those_of_the_medians() -> None:
    calls = [call(0.1, (0.02, 0.03)), call(0.2, (0.02, 0.06)), call(0.9, (0.02, 0.10))]
    simulated = {
        "ttft_s": {"p50": 0.25, "p95": 0.9},
        "itl_s": {"p50": 0.048, "p95": 0.1},
        "itl_mean_s": {"p50": 0.04, "p95": 0.06},
    }
    found = compared(calls, simulated)
    assert found["ttft_measured_s"] == pytest.approx(0.2)
    assert found["ttft_error_ratio"] == pytest.approx(0.25)
    assert found["itl_error_ratio"] == pytest.approx(0.2)
    assert found["itl_mean_error_ratio"] == pytest.approx(0.0, abs=1e-4)
    assert found["ttft_p95_error_ratio"] == pytest.approx(0.0, abs=1e-4)
    assert [bar.met(found[bar.figure] or 0.0) for bar in BARS] == [False, False, True]


def test_a_figure_that_was_not_simulated_has_no_error() -> None:
    found = compared([call(0.1, ())], {"ttft_s": None, "itl_s": None, "itl_mean_s": None})
    assert "ttft_error_ratio" not in found
