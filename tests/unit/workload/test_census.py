"""Census: figures of a trace against those worked out by hand or from closed forms."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.workload.census import Census, Counts, Distinct, Gaps, RateBins
from mileage.workload.columns import azure_columns, columns_of
from mileage.workload.read_options import ReadTally
from mileage.workload.synthetic.arrivals import GammaArrivals
from mileage.workload.synthetic.config import SyntheticConfig
from mileage.workload.synthetic.generator import generate
from tests.support.traces import AZURE, MOONCAKE, read


def test_gaps_by_hand() -> None:
    gaps = Gaps()
    assert gaps.cv is None
    for gap_s in (1.0, 3.0, 0.0, 4.0):
        gaps.add(gap_s)
    assert gaps.cv == pytest.approx(math.sqrt(2.5) / 2.0)
    assert gaps.none == 1


def test_the_cv_of_a_process_is_found_again() -> None:
    census = Census()
    config = SyntheticConfig(rate_rps=9.0, requests=60_000, arrivals=GammaArrivals(cv=2.0))
    for request in generate(config):
        census.add(request)
    assert census.gaps.cv == pytest.approx(2.0, rel=0.05)
    # The dispersion of counts in long windows tends to the squared CV of the gaps.
    assert census.minutes.dispersion == pytest.approx(4.0, rel=0.35)


def test_dispersion_counts_empty_windows_and_not_the_last_one() -> None:
    counts = Counts(1.0)
    for at_s in (0.1, 0.2, 0.3, 0.4, 10.5):
        counts.add(at_s)
    # Ten whole windows: 4 arrivals in one of them.
    assert counts.dispersion == pytest.approx((16 / 10 - 0.16) / 0.4)
    assert Counts(1.0).dispersion is None


@pytest.mark.parametrize("end_s", [0.5, 29.9, 31.0, 1e6, 1e9])
def test_bins_stay_few_and_lose_nothing(end_s: float) -> None:
    bins = RateBins()
    for step in range(1000):
        bins.add(end_s * step / 1000)
    assert sum(bins.counts) == 1000
    assert len(bins.counts) <= 480
    assert (len(bins.counts) - 1) * bins.width_s <= end_s * 0.999
    if end_s > 60:
        assert len(bins.counts) > 230


def test_few_distinct_ids_are_counted_exactly() -> None:
    distinct = Distinct()
    for _ in range(3):
        distinct.add(range(1000))
    assert (distinct.count, distinct.exact) == (1000, True)


def test_many_distinct_ids_are_estimated() -> None:
    distinct, rng = Distinct(), Random(1)
    for _ in range(12):
        begin = rng.randrange(1 << 62)
        distinct.add(range(begin, begin + 100_000))
        distinct.add(range(begin, begin + 50_000))
    assert not distinct.exact
    assert distinct.count == pytest.approx(1_200_000, rel=0.01)


def test_what_prompts_share() -> None:
    census = Census()
    for request in read(MOONCAKE):
        census.add(request)
    assert (census.blocks, census.unique_blocks.count) == (6, 4)
    assert census.prompt_runs == {1025: 1, 600: 1, 512: 1}


def test_columns_are_the_requests() -> None:
    columns = columns_of(read(MOONCAKE))
    assert columns.arrived_s.tolist() == [0.0, 0.0, 2.999]
    assert columns.prompt_tokens.tolist() == [1025, 600, 512]
    assert columns.output_tokens.tolist() == [5, 7, 1]
    assert columns.offsets.tolist() == [0, 3, 5, 6]
    assert columns.blocks.tolist() == [0, 1, 2, 0, 3, 0]
    assert columns.block_tokens.tolist() == [512] * 3
    assert len(columns) == 3


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(AZURE, id="in order"),
        pytest.param([AZURE[0], AZURE[3], AZURE[1], AZURE[2]], id="out of order"),
        pytest.param([*AZURE, b"2023-11-16 18:18:01.5000000,0,55"], id="with a failed one"),
        pytest.param([*AZURE[:1], b"2023-11-16 18:18:01.5000000,0,55"], id="with only that"),
    ],
)
def test_fast_columns_are_those_of_the_reader(lines: list[bytes]) -> None:
    slow_tally, fast_tally = ReadTally(), ReadTally()
    slow = columns_of(read(lines, tally=slow_tally))
    fast = azure_columns(lines, path="t", tally=fast_tally)
    for name in ("prompt_tokens", "output_tokens", "offsets", "blocks", "block_tokens"):
        assert getattr(slow, name).tolist() == getattr(fast, name).tolist(), name
    assert slow.arrived_s.tolist() == pytest.approx(fast.arrived_s.tolist(), abs=1e-9)
    for name in ("records", "failed", "reordered", "format"):
        assert getattr(slow_tally, name) == getattr(fast_tally, name), name
