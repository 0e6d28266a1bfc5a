"""What mileage bench ab prints: its document, exit code, lines and table."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mileage.cli.bench_ab_arguments import AbArguments
from mileage.cli.bench_ab_document import HEADLINES, ab_document, ab_exit_code
from mileage.cli.bench_ab_html import ab_html
from mileage.cli.bench_ab_plan import ab_plan
from mileage.cli.bench_ab_run import AbRun
from mileage.cli.bench_ab_tables import ab_rows, about_lines, show_ab, warning_lines
from mileage.cli.bench_document import encoded
from mileage.loadgen.arms_result import Judge
from mileage.loadgen.arms_run import ArmsRun
from mileage.measure.arm_slot import METRICS
from mileage.measure.sequential import SequentialPlan
from mileage.measure.server_use import ServerUse
from tests.support.ab_slots import Records, answers, arms_run, nothing_but, slot

PLAN = SequentialPlan(blocks_first=4, blocks_between=2, blocks_max=12)
FACTS = {"model": "toy", "server": {"kind": "vllm"}}


def document(run: ArmsRun, **options: Any) -> dict[str, Any]:
    """The document of a run with these options."""
    asked = {"rate": 2.0, "mode": "interleaved", **options}
    plan = ab_plan(AbArguments(a="http://gpu1:8000", b="http://gpu2:8000", **asked))
    judge = Judge(
        PLAN,
        slo=plan.slo,
        metrics=plan.metrics,
        usd_per_hour={"a": plan.a.usd_per_hour, "b": plan.b.usd_per_hour},
    )
    result = judge.result(run)
    ab = AbRun(
        run=run,
        result=result,
        plan=judge.plan,
        outlook=judge.outlook(run, result, effect_ratio=plan.effect_ratio, power=plan.power),
        notes=judge.notes(run, mode=plan.mode, sharing=plan.sharing),
        facts={"a": FACTS, "b": FACTS},
        workload={"name": "2/s poisson"},
        elapsed_s=123.0,
    )
    found: dict[str, Any] = ab_document(plan, ab)
    assert msgspec.json.decode(encoded(found)) is not None
    return found


def of(a: Records, b: Records, *, pairs: int = 6, **options: Any) -> dict[str, Any]:
    return document(arms_run(a, b, pairs=pairs), **options)


def shown(document: dict[str, Any]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    show_ab(document, console)
    return console.export_text()


def test_every_metric_has_both_arms_their_ratio_its_interval_and_a_verdict() -> None:
    found = of(answers(0.1), answers(0.15))
    assert found["verdict"] == "worse"
    assert found["metrics"].keys() == METRICS.keys()
    for metric in found["metrics"].values():
        assert {"a", "b", "ratio", "ci95", "verdict", "better", "text", "basis"} <= metric.keys()
    ttft = found["metrics"]["ttft_p99_s"]
    assert ttft["ratio"] == pytest.approx(1.5)
    assert ttft["ci95"][0] <= 1.5 <= ttft["ci95"][1]
    assert found["plan"]["blocks_max"] == 12
    assert found["arms"]["a"]["figures"]["requests"] == 6 * 20


@pytest.mark.parametrize(
    ("b", "options", "changes", "code"),
    [
        pytest.param(answers(0.07), {}, {}, 0, id="better"),
        pytest.param(answers(0.15), {}, {}, 1, id="worse"),
        pytest.param(answers(0.1), {}, {}, 0, id="equal to the last digit"),
        pytest.param(answers(0.1, spread=-0.2), {}, {}, 3, id="too little was seen"),
        pytest.param(
            answers(0.1, spread=-0.002), {"effect": 0.2}, {}, 0, id="none of the size asked for"
        ),
        pytest.param(answers(0.07), {}, {"error": "the server left"}, 3, id="it broke off"),
        pytest.param(answers(0.07), {}, {"restore_error": "stuck"}, 1, id="settings are wrong now"),
        pytest.param(nothing_but("timeout", "silence"), {}, {}, 1, id="b fails all the time"),
        pytest.param(answers(0.07), {}, {"stopped": True}, 0, id="interrupted when it was clear"),
    ],
)
def test_exit_codes(
    b: Records, options: dict[str, Any], changes: dict[str, Any], code: int
) -> None:
    assert ab_exit_code(document(arms_run(answers(0.1), b, **changes), **options)) == code


def test_a_run_that_is_interrupted_before_there_is_anything_ends_as_shells_expect_it() -> None:
    found = document(arms_run(answers(0.1), answers(0.1), pairs=1, stopped=True))
    assert found["verdict"] == "invalid"
    assert ab_exit_code(found) == 130
    assert "interrupted: the result up to there" in warning_lines(found)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("usd_per_million_tokens", "no price is known: --price", id="no price"),
        pytest.param("goodput_rps", "there is no target: --slo", id="no target"),
        pytest.param("utilisation_ratio", "not seen in both arms of any pair", id="no look at it"),
    ],
)
def test_what_was_not_seen_has_its_reason(name: str, why: str) -> None:
    metric = of(answers(0.1), answers(0.15))["metrics"][name]
    assert metric["a"] is metric["b"] is metric["verdict"] is None
    assert metric["text"] == why


def test_the_use_of_a_server_has_its_basis_or_its_reason() -> None:
    run = arms_run(answers(0.1), answers(0.15))
    use = ServerUse(
        utilisation_ratio=0.5,
        basis={"utilisation_ratio": "process_cpu"},
        missing={"memory_bytes": "no such process"},
    )
    run.slots = [
        slot(s.arm, s.load.records, pair=s.pair, order=s.order, use=use) for s in run.slots
    ]
    metrics = document(run)["metrics"]
    assert metrics["utilisation_ratio"]["basis"] == "process_cpu"
    assert metrics["memory_bytes"]["text"] == "no such process"
    cells = {name: cells for name, cells, _ in ab_rows(document(run))}
    assert cells["utilisation_ratio"] == (
        "50.0%",
        "50.0%",
        "1.000",
        "1.000 to 1.000",
        "- (process cpu)",
    )
    assert cells["memory_bytes"][-1] == "no such process"


def test_headlines_stand_side_by_side_whatever_was_asked_for() -> None:
    found = of(answers(0.1), answers(0.15), metric=["e2e_p50_s"], price=1.8, price_b=2.0)
    rows = ab_rows(found)
    assert [name for name, _, _ in rows] == ["e2e_p50_s", *HEADLINES]
    cells = {name: cells for name, cells, _ in rows}
    assert cells["usd_per_million_tokens"][:3] == ("$83.33", "$92.59", "1.111")
    assert cells["ttft_p99_s"][:3] == ("99.3 ms", "149 ms", "1.500")
    assert cells["ttft_p99_s"][4] == "worse"


def test_what_was_compared_is_told() -> None:
    lines = dict(about_lines(of(answers(0.1), answers(0.15))))
    assert lines["Arm a"] == "http://gpu1:8000, toy"
    assert lines["Load"] == (
        "2/s poisson, 6 pairs of slots of 30 s (5 s of them wash-out), interleaved"
    )
    closed = of(answers(0.1), answers(0.15), rate=None, concurrency=2)
    assert dict(about_lines(closed))["Load"] == (
        "2/s poisson, 6 pairs of slots of 40 requests (4 of them wash-out), interleaved"
    )
    assert closed["plan"]["wash_out_s"] is None


def test_how_long_a_run_has_to_be_is_told_where_too_little_was_seen() -> None:
    found = of(answers(0.1), answers(0.1, spread=-0.2))
    assert not found["enough_evidence"]
    (line,) = [line for line in warning_lines(found) if line.startswith("to see a change")]
    assert "5.0% in ttft_p99_s" in line
    assert "min" in line


def test_the_terminal_shows_verdict_table_and_warnings() -> None:
    text = shown(of(answers(0.1), nothing_but("timeout", "silence")))
    assert "failed_ratio: b is worse: 100 % of its requests failed, and 0 % of a's." in text
    assert "! requests failed: arm a 0.00%; arm b 100.00% (120 timeout)" in text
    assert "not seen in both arms of any pair" in text


def test_a_server_cannot_write_to_the_terminal() -> None:
    found = of(answers(0.1), nothing_but("timeout", "silence"))
    found["reason"] = "\x1b[2Jgone"
    found["arms"]["b"]["model"] = "\x1b]0;x\x07"
    assert "\x1b" not in shown(found)


def test_the_page_has_what_the_terminal_has() -> None:
    found = of(answers(0.1), answers(0.15))
    found["arms"]["b"]["model"] = "<script>"
    page = ab_html(found)
    assert found["reason"] in page
    assert "1.500" in page
    assert "<script>," not in page
    assert "&lt;script&gt;" in page
