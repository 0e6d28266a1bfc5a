"""A scale-out: how its runs are judged, told and drawn, and in which order they are made."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import pytest
from rich.console import Console

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_scale import numbers_of
from mileage.cli.bench_scale_arguments import ScaleArguments
from mileage.cli.bench_scale_document import scale_document, scale_exit_code
from mileage.cli.bench_scale_html import scale_html
from mileage.cli.bench_scale_run import ScaleRun, ScaleRuns, dealt_to
from mileage.cli.bench_scale_tables import show_scale
from mileage.core.errors import ConfigError
from mileage.loadgen.planned_call import PlannedCall
from mileage.measure.shared_resource import ReplicaEvidence

LATE = {"limited": True, "reason": "late", "cpu_ratio": 0.99}


def run(replicas: int, tokens_per_s: float, **changes: Any) -> ScaleRun:
    usual: dict[str, Any] = {
        "error": None,
        "requests": 100,
        "requests_ok": 100,
        "requests_failed": {},
        "requests_per_s": tokens_per_s / 4,
        "output_tokens_per_s": tokens_per_s,
        "goodput_rps": None,
        "generator": {"limited": False, "reason": None, "cpu_ratio": 0.1},
        "ttft_s": {"p95": 0.1},
        "e2e_s": {"p95": 1.0},
    }
    document = {**usual, **changes}
    generator = document["generator"]
    reason = generator["reason"] if generator["limited"] else None
    evidence = ReplicaEvidence(generator_reason=reason)
    return ScaleRun(replicas=replicas, document=document, evidence=evidence)


def judged(*runs: ScaleRun, is_open: bool = False) -> dict[str, Any]:
    return scale_document(ScaleRuns(runs=list(runs)), is_open=is_open, repeats=2)


def test_linear_replicas_have_no_knee_and_share_nothing() -> None:
    found = judged(run(1, 100), run(2, 201), run(3, 299), run(3, 301), run(2, 199), run(1, 100))
    assert (found["knee"], found["shared"]) == (None, None)
    assert scale_exit_code(found) == 0


def test_replicas_behind_a_lock_have_a_knee_and_nothing_is_seen() -> None:
    found = judged(*(run(n, 100) for n in (1, 2, 3, 3, 2, 1)))
    assert found["knee"] == 1
    assert found["sublinear"] == [2, 3]
    assert found["shared"]["resource"] == "none_seen"
    assert found["shared"]["at_replicas"] == 2


def test_better_than_linear_is_told() -> None:
    found = judged(*(run(n, tokens) for n, tokens in ((1, 100), (2, 280), (2, 280), (1, 100))))
    assert found["superlinear"] == [2]


def test_runs_of_one_number_that_differ_make_it_no_news() -> None:
    found = judged(run(1, 70), run(1, 130), run(2, 140), run(2, 220))
    assert found["sublinear"] == []


def test_a_number_whose_generator_was_the_limit_is_left_out_and_named() -> None:
    found = judged(run(1, 100), run(2, 200), run(3, 210, generator=LATE))
    assert found["points"][2]["scaling"] is None
    assert (found["shared"]["resource"], found["shared"]["at_replicas"]) == ("generator", 3)
    assert scale_exit_code(found) == 0


def test_a_scale_out_that_measured_the_generator_alone_has_no_result() -> None:
    assert scale_exit_code(judged(run(1, 100), run(2, 100, generator=LATE))) == 3


def test_replicas_that_fail_are_a_failure() -> None:
    failed = {"requests_ok": 0, "requests_failed": {"connect": 100}}
    assert scale_exit_code(judged(run(1, 100), run(2, 100, **failed))) == 1


def test_an_open_loop_counts_what_met_its_targets() -> None:
    runs = [run(n, 100.0 * n, goodput_rps=good) for n, good in ((1, 10.0), (2, 12.0))]
    assert judged(*runs, is_open=True)["throughput"] == "goodput_rps"
    assert judged(*runs, is_open=False)["throughput"] == "output_tokens_per_s"


def test_an_interrupted_scale_out_says_so() -> None:
    found = scale_document(
        ScaleRuns(runs=[run(1, 100)], interrupted=True), is_open=False, repeats=1
    )
    assert scale_exit_code(found) == 130


def test_the_table_and_the_page_tell_the_knee() -> None:
    found = judged(*(run(n, 100) for n in (1, 2, 3)))
    console = Console(width=160, record=True, file=io.StringIO())
    show_scale(found, console)
    text = console.export_text()
    assert "The knee is at 1" in text
    assert "Shared at 2 replicas: none seen" in text
    assert "The knee is at 1" in scale_html(found)


def test_a_page_without_a_result_is_a_page() -> None:
    assert "left out" in scale_html(judged(run(1, 100, generator=LATE)))


def test_calls_go_to_the_replicas_in_turn() -> None:
    calls = [PlannedCall(index=n, scheduled_s=0.0, path=b"/", body=b"") for n in range(5)]
    assert [call.target for call in dealt_to(3, calls, "turns")] == [0, 1, 2, 0, 1]
    assert [call.target for call in dealt_to(1, calls, "turns")] == [0] * 5


def test_or_where_the_fewest_are_when_they_leave() -> None:
    calls = [PlannedCall(index=n, scheduled_s=0.0, path=b"/", body=b"") for n in range(2)]
    assert [call.target for call in dealt_to(3, calls, "least")] == [None, None]
    assert [call.target for call in dealt_to(1, calls, "least")] == [0, 0]


def test_no_option_of_a_load_means_something_else_here() -> None:
    added = set(ScaleArguments.__annotations__)
    assert "balance" in added
    assert added.isdisjoint(field.name for field in fields(LoadArguments))


def test_numbers_go_up_and_down() -> None:
    assert list(numbers_of(ScaleArguments(repeats=2))(3)) == [1, 2, 3, 3, 2, 1]
    assert list(numbers_of(ScaleArguments(repeats=1, numbers="4,1"))(4)) == [1, 4]


@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        pytest.param("1,5", 4, id="more than there are"),
        pytest.param(None, 1, id="one replica is no scale-out"),
        pytest.param("3", 4, id="one number is none"),
    ],
)
def test_numbers_that_cannot_be(numbers: str | None, count: int) -> None:
    with pytest.raises(ConfigError) as told:
        numbers_of(ScaleArguments(numbers=numbers))(count)
    assert told.value.key == "--numbers"
