"""The figures of a result, from outcomes that are made up."""

from __future__ import annotations

import math

import msgspec
import pytest

from mileage.core.slo import Slo
from mileage.sim.node import ReplicaTotals
from mileage.sim.outcome import CANCELLED, OK, REJECTED, Outcomes
from mileage.sim.series import SIGNALS, Series
from mileage.sim.simulation import SimResult
from mileage.sim.summary import attained, summarise

_TOTALS = ReplicaTotals(
    name="a",
    steps=100,
    finished=8,
    preemptions=3,
    prompt_tokens=1000,
    prefill_tokens=800,
    output_tokens=500,
    prefix_query_tokens=1000,
    prefix_hit_tokens=250,
    busy_s=50.0,
    running_s=0.0,
    waiting_s=0.0,
    kv_blocks=100,
    kv_blocks_peak=60,
)


def _result(
    rows: list[tuple[int, float, float, int]], *, rejections: dict[str, int] | None = None
) -> SimResult:
    """Rows of (status, ttft, p99 gap, prompt tokens)."""
    out = Outcomes()
    for status, ttft_s, itl_s, prompt_tokens in rows:
        row = out.open(0.0, prompt_tokens)
        out.status[row] = status
        out.ttft_s[row], out.itl_p99_s[row], out.itl_mean_s[row] = ttft_s, itl_s, itl_s / 2
        out.e2e_s[row] = ttft_s + 1.0
        out.output_tokens[row] = 50 if status == OK else 0
    series = Series(start_s=0.0, width_s=1.0)
    for usage in (0.2, 0.4):
        series.add(0.0, (0.0,) * SIGNALS.index("kv_usage_ratio") + (usage, 0.0))
    return SimResult(
        outcomes=out,
        rejections=rejections or {},
        replicas=(_TOTALS, _TOTALS),
        series=series,
        start_s=0.0,
        duration_s=100.0,
        gpus=4.0,
    )


def test_latencies_are_of_those_that_were_answered() -> None:
    rows = [(OK, float(i), 0.01, 1) for i in range(1, 101)] + [(REJECTED, math.nan, math.nan, 1)]
    summary = summarise(_result(rows), slo=Slo())
    assert summary.ttft_s is not None
    assert (summary.ttft_s.p50, summary.ttft_s.p95, summary.ttft_s.p99) == (50.0, 95.0, 99.0)
    assert summary.requests == 101
    assert summary.answered == 100


def test_who_is_refused_or_leaves_has_missed_the_targets() -> None:
    rows = [
        (OK, 1.0, 0.05, 1),
        (OK, 3.0, 0.05, 1),  # late
        (OK, 1.0, 0.15, 1),  # slow, but not on average
        (REJECTED, math.nan, math.nan, 1),
        (CANCELLED, math.nan, math.nan, 1),
    ]
    summary = summarise(_result(rows, rejections={"deadline": 1}), slo=Slo(ttft_s=2.0, itl_s=0.1))
    assert summary.slo_attainment_ratio == 0.2
    assert summary.slo_attainment_itl_mean_ratio == 0.4
    assert summary.goodput_rps == 0.01
    assert summary.rejected == {"deadline": 1}
    assert summary.cancelled == 1


def test_an_answer_of_one_token_has_no_gaps_to_miss() -> None:
    assert list(attained(_result([(OK, 1.0, math.nan, 1)]), slo=Slo(itl_s=0.1))) == [True]


def test_each_request_may_have_a_target_of_its_own() -> None:
    result = _result([(OK, 1.0, 0.0, 1), (OK, 1.0, 0.0, 1)])
    met = attained(result, slo=Slo(ttft_s=5.0), ttft_targets_s=[0.5, 1.5])
    assert list(met) == [False, True]


def test_attainment_is_told_by_prompt_length() -> None:
    rows = [(OK, 1.0 if i < 90 else 9.0, 0.0, 1000 + i) for i in range(100)]
    rows = rows[50:] + rows[:50]
    summary = summarise(_result(rows), slo=Slo(ttft_s=2.0))
    assert summary.attainment_by_prompt_decile == (1.0,) * 9 + (0.0,)


def test_money_is_of_all_gpus_for_all_the_time() -> None:
    rows = [(OK, 1.0, 0.0, 1), (OK, 9.0, 0.0, 1)]
    summary = summarise(_result(rows), slo=Slo(ttft_s=2.0), usd_per_gpu_hour=3.6)
    usd = 3.6 * 4 * 100 / 3600
    assert summary.usd_per_mtok == pytest.approx(usd / 100 * 1e6)
    assert summary.usd_per_mtok_in_slo == pytest.approx(usd / 50 * 1e6)


def test_what_the_engines_did_is_summed() -> None:
    summary = summarise(_result([(OK, 1.0, 0.0, 1)]), slo=Slo())
    assert summary.gpu_busy_ratio == 0.5
    assert summary.preemptions == 6
    assert summary.prefix_cache_hit_ratio == 0.25
    assert summary.output_tokens_per_s == 10.0
    assert summary.kv_cache_usage_mean_ratio == pytest.approx(0.3)
    assert summary.kv_cache_usage_peak_ratio == 0.6


def test_what_is_not_known_is_none() -> None:
    summary = summarise(_result([]), slo=Slo())
    assert summary.ttft_s is None
    assert summary.slo_attainment_ratio is None
    assert summary.usd_per_mtok is None
    assert summary.attainment_by_prompt_decile == ()
    assert summary.goodput_rps == 0.0


def test_the_use_of_kv_caches_is_unknown_where_all_was_over_before_a_scrape() -> None:
    result = _result([(OK, 0.1, 0.0, 1)])
    start = Series(start_s=0.0, width_s=1.0)
    start.add(0.0, (0.0,) * len(SIGNALS))  # of engines that have done nothing yet
    summary = summarise(msgspec.structs.replace(result, series=start), slo=Slo())
    assert summary.kv_cache_usage_mean_ratio is None


def test_what_was_loaded_from_behind_the_gpu_is_told_beside_its_own_hits() -> None:
    result = _result([(OK, 1.0, 0.05, 1)])
    assert summarise(result, slo=Slo()).kv_tier_hit_ratio is None
    loaded = msgspec.structs.replace(_TOTALS, load_tokens=400)
    summary = summarise(msgspec.structs.replace(result, replicas=(loaded, _TOTALS)), slo=Slo())
    assert (summary.prefix_cache_hit_ratio, summary.kv_tier_hit_ratio) == (0.25, 0.2)


def test_time_per_token_is_not_that_per_event_where_events_bring_several() -> None:
    """49 tokens after the first in a second; gaps of 50 ms: 20 events."""
    summary = summarise(_result([(OK, 1.0, 0.1, 1)] * 3), slo=Slo())
    assert summary.itl_mean_s is not None
    assert summary.tpot_s is not None
    assert summary.itl_mean_s.p50 == pytest.approx(0.05)
    assert summary.tpot_s.p99 == pytest.approx(1 / 49)
    assert summary.tokens_per_event == pytest.approx(49 / 20)


def test_without_streams_there_is_no_time_per_token() -> None:
    summary = summarise(_result([(OK, math.nan, math.nan, 1), (REJECTED, 1.0, 1.0, 1)]), slo=Slo())
    assert (summary.tpot_s, summary.tokens_per_event) == (None, None)
