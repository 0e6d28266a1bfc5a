"""The result of a sweep: the front of its points, its noise, its picks, and its exit code."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from mileage.cli.bench_sweep_document import sweep_document, sweep_exit_code
from mileage.cli.bench_sweep_html import sweep_html
from mileage.cli.bench_sweep_points import SweepPoint
from mileage.cli.bench_sweep_run import SweepRuns
from mileage.cli.bench_sweep_tables import pick_lines, show_sweep


def run(
    ttft_s: float | None, itl_s: float | None, rate: float, *, e2e_s: float = 1.0, **changes: Any
) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "error": None,
        "requests": 100,
        "requests_ok": 100,
        "requests_failed": {},
        "requests_per_s": rate / 10,
        "output_tokens_per_s": rate,
        "generator": {"limited": False, "reason": None, "cpu_ratio": 0.1, "lag_p99_s": 0.001},
        "ttft_s": {"p95": ttft_s},
        "itl_s": {"p95": itl_s},
        "e2e_s": {"p95": e2e_s},
        "usd_per_mtok": None,
        "conditions": {"url": "http://h", "model": "m", "workload": {"name": "w"}},
    }
    return {**usual, **changes}


def swept(*runs: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    points = [SweepPoint(concurrency=n + 1) for n in range(len(runs))]
    found = SweepRuns(documents=list(runs), faults={}, **changes)
    return sweep_document(points, found, quantile="p95", repeats=1)


def front(document: dict[str, Any]) -> list[bool]:
    return [point["on_front"] for point in document["points"]]


def test_a_beaten_point_is_off_the_front() -> None:
    found = swept([run(0.1, 0.01, 10)], [run(0.2, 0.02, 40)], [run(0.3, 0.03, 40)])
    assert front(found) == [True, True, False]
    assert found["picks"]["low_latency"] == "1 client"
    assert found["picks"]["throughput"] == "2 clients"


def test_throughput_is_picked_where_the_rest_is_within_the_noise() -> None:
    quick = [run(0.1, 0.01, 310), run(0.1, 0.01, 314)]
    slow = [run(0.5, 0.01, 311), run(0.5, 0.01, 315)]
    found = swept([run(0.1, 0.01, 150)] * 2, quick, slow)
    assert found["picks"]["throughput"] == "2 clients"
    assert "what 3 clients had more, 313/s, is within the noise" in pick_lines(found)[1]
    exact = swept([run(0.1, 0.01, 150)] * 2, [run(0.1, 0.01, 312)] * 2, [run(0.5, 0.01, 313)] * 2)
    assert exact["picks"]["throughput"] == "3 clients"
    assert "noise" not in pick_lines(exact)[1]


def test_of_single_runs_the_noise_is_that_of_their_seconds() -> None:
    def one(ttft_s: float, tokens: list[float]) -> dict[str, Any]:
        seconds = [float(second) for second in range(len(tokens) + 2)]
        series = {"step_s": 1.0, "second_s": seconds, "output_tokens": [0.0, *tokens, 0.0]}
        window = {"start_s": 1.0, "end_s": 1.0 + len(tokens)}
        return run(ttft_s, 0.01, sum(tokens) / len(tokens), series=series, window=window)

    quick, slow = one(0.1, [300.0, 320.0, 310.0] * 10), one(0.5, [301.0, 322.0, 310.0] * 10)
    noisy = one(0.1, [290.0] * 15 + [330.0] * 15)
    assert swept([quick], [slow])["picks"]["throughput"] == "2 clients"  # 1 of 310, and steady
    assert swept([noisy], [slow])["picks"]["throughput"] == "1 client"
    short = one(0.1, [290.0] * 9 + [330.0] * 9)
    assert swept([short], [slow])["picks"]["throughput"] == "2 clients"


def test_a_point_whose_generator_was_the_limit_is_left_out() -> None:
    limited = {"limited": True, "reason": "busy", "cpu_ratio": 1.0, "lag_p99_s": 1.0}
    found = swept([run(0.1, 0.01, 10)], [run(0.01, 0.001, 99, generator=limited)])
    assert front(found) == [True, False]
    assert "generator" in found["points"][1]["excluded"][0]
    assert sweep_exit_code(found) == 0


def test_only_generators_at_their_limit_are_no_result() -> None:
    limited = {"limited": True, "reason": "busy", "cpu_ratio": 1.0, "lag_p99_s": 1.0}
    assert sweep_exit_code(swept([run(0.1, 0.01, 10, generator=limited)] * 2)) == 3


def test_failures_are_no_front() -> None:
    failed = run(0.1, 0.01, 10, requests_ok=0, requests_failed={"cut": 100})
    assert sweep_exit_code(swept([failed], [failed])) == 1


def test_points_that_differ_by_noise_may_be_on_the_front() -> None:
    noisy = [run(0.1, 0.01, 30), run(0.1, 0.01, 50)]
    found = swept([run(0.1, 0.01, 42)] * 2, noisy, [run(0.2, 0.02, 20)] * 2)
    near = [point["within_noise_of_front"] for point in found["points"]]
    assert front(found) == [True, False, False]
    assert near == [True, True, False]


def test_answers_without_streams_are_compared_end_to_end() -> None:
    found = swept([run(None, None, 10, e2e_s=2.0)], [run(None, None, 20, e2e_s=1.0)])
    assert [each["figure"] for each in found["objectives"]] == ["e2e_s.p95", "output_tokens_per_s"]
    assert front(found) == [False, True]


def test_cost_counts_where_a_price_is_known() -> None:
    found = swept([run(0.1, 0.01, 10, usd_per_mtok=2.0)], [run(0.1, 0.01, 10, usd_per_mtok=1.0)])
    assert front(found) == [False, True]


def test_a_value_that_could_not_be_put_in_force_says_why() -> None:
    points = [SweepPoint(value="a", rate=1.0), SweepPoint(value="b", rate=1.0)]
    runs = SweepRuns(documents=[[run(0.1, 0.01, 9)], []], faults={"b": "no such key"})
    found = sweep_document(points, runs, quantile="p95", repeats=1)
    assert found["points"][1]["excluded"] == ["no such key"]


def test_settings_that_were_not_put_back_are_a_failure() -> None:
    found = swept([run(0.1, 0.01, 10)] * 1, [run(0.2, 0.02, 20)], restored="the gateway is down")
    assert sweep_exit_code(found) == 1


def test_an_interrupted_sweep_ends_as_shells_expect_it() -> None:
    assert sweep_exit_code(swept([run(0.1, 0.01, 10)], [], interrupted=True)) == 130


def test_the_table_marks_front_and_picks() -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    show_sweep(swept([run(0.1, 0.01, 10)] * 2, [run(0.2, 0.02, 40)] * 2), console)
    text = console.export_text()
    assert "TTFT p95" in text
    assert "100 ms +-0%" in text
    assert "Throughput: 2 clients (TTFT p95 200 ms" in text


def test_thesweep_html_escapes_names() -> None:
    points = [SweepPoint(value="<b>", rate=1.0), SweepPoint(value="c", rate=1.0)]
    runs = SweepRuns(documents=[[run(0.1, 0.01, 9)], [run(0.2, 0.02, 18)]], faults={})
    page = sweep_html(sweep_document(points, runs, quantile="p95", repeats=1))
    assert "<b>, 1/s" not in page
    assert "&lt;b&gt;, 1/s" in page
