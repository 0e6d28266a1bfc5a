"""How far off simulated latencies may be: what is shown, and where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.costmodel.efficiency_table import FITTED, TPOT_INTERVAL, TTFT_INTERVAL

TRACE = "synthetic:rate=4,duration=20s,prompt=uniform:100:2000,output=uniform:10:100"
FLEET = ("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h100", "--policy", "off")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(*arguments, "--json"))
    return found


def test_medians_have_the_intervals_of_the_step_time_model() -> None:
    found = document(*FLEET)
    spans, gap_s, first_s = found["intervals"], found["itl_mean_s"]["p50"], found["ttft_s"]["p50"]
    assert spans["level_ratio"] == 0.8
    assert (spans["tpot_ratio"], spans["ttft_ratio"]) == (list(TPOT_INTERVAL), list(TTFT_INTERVAL))
    assert spans["tpot_p50_s"] == pytest.approx([each * gap_s for each in TPOT_INTERVAL])
    client_s = first_s + FITTED.ttft_s
    assert spans["ttft_p50_s"] == pytest.approx([each * client_s for each in TTFT_INTERVAL])
    assert spans["ttft_p50_s"][0] < first_s < spans["ttft_p50_s"][1]
    assert "80 % intervals   median TTFT at a client" in shown(*FLEET)


def test_a_queue_has_none_of_the_first_token() -> None:
    spans = document(*FLEET, "--rate-scale", "100")["intervals"]
    assert spans["ttft_ratio"] is None
    assert spans["ttft_p50_s"] is None
    assert spans["tpot_p50_s"] is not None
    assert "none of TTFT where requests queue" in shown(*FLEET, "--rate-scale", "100")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--engine-option", "speculation.draft_tokens=1"), id="speculation"),
        pytest.param(("--engine-option", "static_batch.size=4"), id="static batches"),
        pytest.param(("--replicas", "2", "--share", "2"), id="a shared GPU"),
    ],
)
def test_what_nothing_was_measured_of_has_none(options: tuple[str, ...]) -> None:
    assert document(*FLEET, *options)["intervals"] is None
    assert "80 % intervals" not in shown(*FLEET, *options)


def test_each_arm_of_a_comparison_has_its_own(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "report.html"
    two = ("compare", *FLEET[:5], "h100,l4", *FLEET[6:])
    found = document(*two, "--report", str(page))
    quick, slow = (arm["intervals"]["tpot_p50_s"] for arm in found["arms"])
    assert quick[1] < slow[0]
    assert page.read_text("utf-8").count("four of five measured systems were within") == 2
