"""Mean latencies by an engine's histograms: sums and counts between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.scrape.engine_means import (
    EngineFigure,
    EngineTotals,
    means_between,
    restarted,
    totals_of,
)


def page(family: str, *series: tuple[str, float, float]) -> bytes:
    lines = [f"# TYPE {family} histogram"]
    for labels, total, count in series:
        lines += [
            f'{family}_bucket{{{labels},le="+Inf"}} {count}',
            f"{family}_sum{{{labels}}} {total}",
            f"{family}_count{{{labels}}} {count}",
        ]
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.parametrize(
    "family",
    [
        "vllm:time_to_first_token_seconds",
        "vllm_time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "mileage_time_to_first_token_seconds",
    ],
)
def test_the_mean_is_of_what_came_between_two_looks(family: str) -> None:
    before = totals_of(page(family, ('model="m"', 10.0, 5)))
    after = totals_of(page(family, ('model="m"', 13.0, 8), ('model="n"', 1.0, 1)))
    mean = means_between(before, after)["ttft_s"]
    assert (mean.mean_s, mean.count) == (1.0, 4)


def test_the_newer_name_of_the_gaps_is_preferred() -> None:
    both = page("vllm:time_per_output_token_seconds", ('a="b"', 1.0, 1)) + page(
        "vllm:inter_token_latency_seconds", ('a="b"', 6.0, 2)
    )
    mean = means_between(EngineTotals(), totals_of(both))["itl_s"]
    assert (mean.mean_s, mean.family) == (3.0, "vllm:inter_token_latency_seconds")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((5.0, 5), (5.0, 5), id="nothing came"),
        pytest.param((50.0, 50), (5.0, 5), id="the engine began anew"),
    ],
)
def test_no_mean_where_there_is_none(
    before: tuple[float, float], after: tuple[float, float]
) -> None:
    family = "vllm:e2e_request_latency_seconds"
    looks = [totals_of(page(family, ('m="m"', *look))) for look in (before, after)]
    assert means_between(*looks) == {}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="an empty page"),
        pytest.param(b"<html>not found</html>", id="no page of that kind"),
        pytest.param(
            page("vllm:e2e_request_latency_seconds", ('m="m"', float("nan"), 3)), id="NaN"
        ),
    ],
)
def test_a_page_without_histograms_has_no_totals(body: bytes) -> None:
    assert totals_of(body) == EngineTotals()


def test_llamacpp_tells_seconds_and_tokens() -> None:
    looks = [
        totals_of(
            f"llamacpp:tokens_predicted_seconds_total {seconds}\n"
            f"llamacpp:tokens_predicted_total {tokens}\n".encode()
        )
        for seconds, tokens in ((10.0, 100), (12.0, 140))
    ]
    mean = means_between(*looks)["itl_s"]
    assert (mean.mean, mean.count, mean.counts_first_tokens) == (0.05, 40, True)


def test_tokens_have_means_too() -> None:
    page_ = page("vllm:request_prompt_tokens", ('m="m"', 900.0, 3))
    mean = means_between(EngineTotals(), totals_of(page_))["prompt_tokens"]
    assert (mean.mean, mean.count) == (300.0, 3)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(100.0, 100.4, False, id="the same process, by a coarse clock"),
        pytest.param(100.0, 160.0, True, id="another process, which counted more since"),
    ],
)
def test_another_process_is_another_engine(before: float, after: float, told: bool) -> None:
    family = "vllm:e2e_request_latency_seconds"
    looks = [
        totals_of(
            page(family, ('m="m"', 5.0 * n, 5 * n))
            + f"process_start_time_seconds {started}\n".encode()
        )
        for n, started in ((1, before), (2, after))
    ]
    assert restarted(*looks) is told
    assert (means_between(*looks) == {}) is told


def test_a_count_that_fell_makes_every_figure_worthless() -> None:
    first = page("vllm:e2e_request_latency_seconds", ('m="m"', 5.0, 5))
    second = page("vllm:e2e_request_latency_seconds", ('m="m"', 1.0, 1))
    other = page("vllm:time_to_first_token_seconds", ('m="m"', 9.0, 9))
    before, after = totals_of(first), totals_of(second + other)
    assert restarted(before, after)
    assert means_between(before, after) == {}


@pytest.mark.parametrize(
    ("file", "figure", "mean"),
    [
        ("vllm_v0_datadog_fixture.txt", "ttft_s", 0.31326723),
        ("vllm_v0_datadog_fixture.txt", "itl_s", 0.19016314 / 6),
        ("vllm_v0_datadog_fixture.txt", "e2e_s", 0.50343037),
        ("vllm_v0_datadog_fixture.txt", "prompt_tokens", 5.0),
        ("vllm_v0_datadog_fixture.txt", "output_tokens", 7.0),
        ("sglang_docs_production_metrics.txt", "ttft_s", 2.3518979474117756e06 / 11008),
        ("sglang_docs_production_metrics.txt", "itl_s", 866964.5791549598 / 7400757),
        ("sglang_docs_production_metrics.txt", "e2e_s", 3.116093850019932e06 / 11228),
        ("llamacpp_ik695.txt", "itl_s", 3544.27 / 3469),
    ],
)
def test_pages_of_real_engines(
    data_dir: Path, file: str, figure: EngineFigure, mean: float
) -> None:
    totals = totals_of((data_dir / "metrics" / file).read_bytes())
    assert means_between(EngineTotals(), totals)[figure].mean == pytest.approx(mean)
