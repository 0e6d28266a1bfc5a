"""What a server used of its machine in a window of its samples."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.measure.server_use import Figure, ServerUse, UseSample, UseSeries, server_use


def series(*samples: dict[str, Any], missing: dict[Figure, str] | None = None) -> UseSeries:
    """Samples a second apart from 0 on, with every basis known."""
    return UseSeries(
        samples=tuple(
            UseSample(**{"at_s": float(at_s), **sample}) for at_s, sample in enumerate(samples)
        ),
        basis={
            "utilisation_ratio": "process_cpu",
            "memory_bytes": "process_rss",
            "energy_j": "machine_rapl",
        },
        missing=missing or {},
    )


def busy(*ratios: float | None) -> UseSeries:
    return series(*({"utilisation_ratio": ratio} for ratio in ratios))


def of(samples: UseSeries, start_s: float, end_s: float) -> ServerUse:
    return server_use(samples, start_s=start_s, end_s=end_s)


@pytest.mark.parametrize(
    ("ratios", "start_s", "end_s", "expected"),
    [
        pytest.param((None, 0.2, 0.4), 0.0, 2.0, 0.3, id="the mean over the intervals"),
        pytest.param((None, 0.2, 0.4), 0.5, 1.0, 0.2, id="a part of one interval is that one's"),
        pytest.param((None, 0.0, 1.0), 0.75, 1.25, 0.5, id="each interval with its overlap"),
        pytest.param((None, 0.5, None), 0.0, 2.0, 0.5, id="half of the window is enough"),
        pytest.param((None, 0.5, None, None), 0.0, 3.0, None, id="a third is not"),
        pytest.param((None, None, None), 0.0, 2.0, None, id="nothing known: not 0"),
        pytest.param((None, 0.5), 5.0, 6.0, None, id="a window without a look"),
    ],
)
def test_utilisation(
    ratios: tuple[float | None, ...], start_s: float, end_s: float, expected: float | None
) -> None:
    found = of(busy(*ratios), start_s, end_s).utilisation_ratio
    assert found == (None if expected is None else pytest.approx(expected))


def test_memory_is_the_highest_seen_in_the_window() -> None:
    samples = series(
        {"memory_bytes": 9}, {"memory_bytes": 5}, {"memory_bytes": 7}, {"memory_bytes": 6}
    )
    assert of(samples, 1.0, 3.0).memory_bytes == 7


def test_energy_takes_its_share_of_the_intervals_at_the_edges() -> None:
    samples = series({}, {"energy_j": 100.0}, {"energy_j": 50.0})
    assert of(samples, 0.5, 1.5).energy_j == pytest.approx(75.0)


@pytest.mark.parametrize(
    ("samples", "end_s"),
    [
        pytest.param(series({}, {"energy_j": 1.0}, {}), 2.0, id="an interval without it"),
        pytest.param(series({}, {"energy_j": 1.0}), 2.0, id="the window is longer than the looks"),
        pytest.param(series({"energy_j": 1.0}), 0.0, id="one look"),
    ],
)
def test_energy_that_is_not_known_whole_is_not_known(samples: UseSeries, end_s: float) -> None:
    assert of(samples, 0.0, end_s).energy_j is None


def test_each_figure_has_a_basis_or_the_reason_why_it_is_missing() -> None:
    samples = series(
        {}, {"utilisation_ratio": 0.5}, missing={"memory_bytes": "no process can be read"}
    )
    use = of(samples, 0.0, 1.0)
    assert use.basis == {"utilisation_ratio": "process_cpu"}
    assert use.missing == {
        "memory_bytes": "no process can be read",
        "energy_j": "not known for enough of this window",
    }
    assert set(of(samples, 7.0, 8.0).missing) == {"utilisation_ratio", "memory_bytes", "energy_j"}


@pytest.mark.parametrize(
    ("epochs", "start_s", "end_s", "restarted"),
    [
        pytest.param((0, 0, 0), 0.0, 2.0, False, id="one server"),
        pytest.param((0, 1, 1), 0.0, 2.0, True, id="another in the window"),
        pytest.param((0, 1, 1, 1), 2.0, 3.0, False, id="another before the window"),
        pytest.param((0, 1, 1), 0.5, 2.0, True, id="between the last look before it and its first"),
        pytest.param((0, 0, 1), 0.0, 1.5, True, id="between its last look and the first after it"),
    ],
)
def test_restarts(epochs: tuple[int, ...], start_s: float, end_s: float, restarted: bool) -> None:
    samples = series(*({"epoch": epoch} for epoch in epochs))
    assert of(samples, start_s, end_s).restarted is restarted


def test_kv_use_is_told_apart_from_utilisation() -> None:
    samples = series({"kv_cache_usage_ratio": 0.25}, {}, {"kv_cache_usage_ratio": 0.75})
    use = of(samples, 0.0, 2.0)
    assert (use.kv_cache_usage_ratio, use.utilisation_ratio) == (0.5, None)
