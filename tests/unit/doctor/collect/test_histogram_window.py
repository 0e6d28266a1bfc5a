"""Means and quantile bounds out of histograms, over a window."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.histogram_window import HistogramWindow, histogram_window
from tests.support.engine_pages import facts_of, window_of

NAME = "vllm:time_to_first_token_seconds"


def page(counts: dict[str, float], total: float, rank: int = 0) -> str:
    """A histogram by cumulative counts."""
    lines = [
        f'{NAME}_bucket{{engine="{rank}",le="{edge}"}} {count}' for edge, count in counts.items()
    ]
    count = counts["+Inf"]
    return "\n".join(
        [
            *lines,
            f'{NAME}_sum{{engine="{rank}"}} {total}',
            f'{NAME}_count{{engine="{rank}"}} {count}',
        ]
    )


def read(*texts: str) -> HistogramWindow:
    """The histogram of a window of these pages."""
    found = histogram_window(window_of(*texts), [NAME])
    assert found is not None
    return found


def test_only_what_came_in_the_window_counts() -> None:
    found = read(
        page({"0.1": 90, "1.0": 90, "+Inf": 100}, 500.0),
        page({"0.1": 90, "1.0": 94, "+Inf": 105}, 512.0),
    )
    assert found.count == 5
    assert found.mean == pytest.approx(12.0 / 5)
    assert found.quantile(0.5) == {"min": 0.1, "max": 1.0}
    assert found.quantile(0.99) == {"min": 1.0}


def test_a_quantile_is_the_bucket_it_lies_in() -> None:
    found = read(page({"0.1": 50, "0.5": 90, "1.0": 100, "+Inf": 100}, 30.0))
    assert found.quantile(0.5) == {"min": 0.0, "max": 0.1}
    assert found.quantile(0.51) == {"min": 0.1, "max": 0.5}
    assert found.quantile(0.9) == {"min": 0.1, "max": 0.5}
    assert found.quantile(0.91) == {"min": 0.5, "max": 1.0}


def test_ranks_are_added_up() -> None:
    found = read(
        page({"0.1": 10, "1.0": 10, "+Inf": 10}, 0.5, rank=0)
        + "\n"
        + page({"0.1": 0, "1.0": 10, "+Inf": 10}, 5.0, rank=1)
    )
    assert found.count == 20
    assert found.quantile(0.5) == {"min": 0.0, "max": 0.1}
    assert found.quantile(0.75) == {"min": 0.1, "max": 1.0}


def test_series_of_other_edges_share_those_that_both_have() -> None:
    found = read(
        page({"0.1": 10, "1.0": 10, "+Inf": 10}, 0.5, rank=0)
        + "\n"
        + page({"0.2": 10, "1.0": 10, "+Inf": 10}, 1.5, rank=1)
    )
    assert [edge for edge, _ in found.edges] == [1.0, float("inf")]


def test_an_idle_window_has_no_latency() -> None:
    same = page({"0.1": 90, "+Inf": 100}, 500.0)
    found = read(same, same)
    assert found.mean is None
    assert found.quantile(0.5) is None
    assert facts_of("vllm:num_requests_running 0\n" + same, "vllm:num_requests_running 0\n" + same)[
        "signals"
    ] == {"requests_running": 0, "requests_running_max": 0}


def test_a_restart_keeps_what_came_after_it() -> None:
    found = read(page({"0.1": 90, "+Inf": 100}, 500.0), page({"0.1": 3, "+Inf": 4}, 2.0))
    assert found.count == 4
    assert found.mean == pytest.approx(0.5)
