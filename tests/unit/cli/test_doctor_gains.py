"""What `mileage doctor` prints of gain, risk and when changes take effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from tests.support.gain_facts import gain_facts

CAPPED = gain_facts(
    settings={"max_num_seqs": 4},
    signals={"requests_running": 4, "requests_waiting": 60, "kv_cache_usage_ratio": 0.1},
)
UNKNOWN = gain_facts(
    model={"name": "in-house-9b"},
    hardware={"count": ...},
    settings={"max_num_seqs": 4, "enable_prefix_caching": False},
    workload={"shared_prefix_tokens": 400},
)


def doctor(tmp_path: Path, facts: dict[str, Any], *options: str) -> Result:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts))
    return CliRunner().invoke(app, ["doctor", "--facts", str(path), *options])


def test_the_document_has_gains_with_their_basis_risk_and_effect(tmp_path: Path) -> None:
    found = json.loads(doctor(tmp_path, CAPPED, "--json").stdout)["findings"][0]
    assert [gain["metric"] for gain in found["expected_gain"]] == [
        "throughput_ratio",
        "ttft_p99_ratio",
        "itl_p99_ratio",
    ]
    for gain in found["expected_gain"]:
        assert set(gain) == {"metric", "low", "high", "basis"}
        assert 0.0 < gain["low"] <= gain["high"]
        assert gain["basis"].startswith("simulated: 64 requests in flight")
    assert found["gain_unknown_because"] is found["loss_unknown_because"] is None
    assert found["risk"].startswith("A larger batch makes each step longer")
    (change,) = found["changes"]
    assert "restart of the engine" in change["takes_effect"]


def test_the_document_says_why_gain_and_loss_are_not_known(tmp_path: Path) -> None:
    findings = json.loads(doctor(tmp_path, UNKNOWN, "--json").stdout)["findings"]
    found = next(each for each in findings if each["rule"] == "PFX001")
    assert found["expected_gain"] is found["loss_usd_per_month"] is None
    assert "model is not one" in found["gain_unknown_because"]
    assert "share" in found["loss_unknown_because"]


def test_people_see_the_gain_first_then_the_risk_below_what_to_do(tmp_path: Path) -> None:
    shown = " ".join(doctor(tmp_path, CAPPED).stdout.split())
    places = [
        shown.find(said)
        for said in (
            "gain x",
            "output tokens per second and card",
            "simulated: 64",
            "do Raise the cap",
            "max_num_seqs: after a restart",
            "risk A larger batch",
            "prove it",
        )
    ]
    assert -1 not in places
    assert places == sorted(places)


def test_people_see_why_they_see_no_gain(tmp_path: Path) -> None:
    shown = " ".join(doctor(tmp_path, UNKNOWN).stdout.split())
    assert "gain unknown (not simulated: the model is not one" in shown


def test_markdown_and_the_page_have_them(tmp_path: Path) -> None:
    markdown, page = tmp_path / "a.md", tmp_path / "a.html"
    doctor(tmp_path, CAPPED, "--markdown", str(markdown), "--html", str(page))
    text, html = markdown.read_text(), page.read_text()
    for whole in (text, html):
        assert "Expected gain: " in whole
        assert "max_num_seqs: after a restart of the engine" in whole
        assert "A larger batch makes each step longer" in whole
    assert "**Risk.**" in text
    assert "<code>kv_cache_usage_ratio</code>, preemptions" in html


def test_explain_shows_the_risk() -> None:
    shown = CliRunner().invoke(app, ["explain", "BAT001"]).stdout
    assert "Risk" in shown
    assert "A larger batch makes each step longer" in " ".join(shown.split())
