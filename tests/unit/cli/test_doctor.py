"""`mileage doctor` on documents: what it prints, what it exits with, what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.doctor_fact import stated_facts
from mileage.cli.doctor_text import shown_value
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

IDLE: dict[str, Any] = {
    "hardware": {"gpu": "A100-80GB", "count": 2},
    "workload": {"kind": "online", "rate_rps": 0},
    "signals": {"requests_running": 0, "requests_waiting": 0, "gpu_util_ratio": [0, 0]},
}
BUSY: dict[str, Any] = {
    "workload": {"kind": "online", "rate_rps": 4, "slo_itl_s": 0.05},
    "signals": {
        "requests_running": 12,
        "requests_waiting": 0,
        "kv_cache_usage_ratio": 0.5,
        "itl_p99_s": 0.03,
        "sm_active_ratio": 0.9,
    },
}


def doctor(tmp_path: Path, document: Any, *options: str) -> tuple[int, str]:
    path = tmp_path / "facts.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    result = CliRunner().invoke(app, ["doctor", "--facts", str(path), *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_finding_has_all_that_was_promised(tmp_path: Path) -> None:
    code, out = doctor(tmp_path, IDLE, "--json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (1, "finding")
    (found,) = document["findings"]
    assert (found["rule"], found["cause"], found["severity"]) == ("CAP001", "idle_capacity", "info")
    assert 0.5 < found["confidence"] < 1
    assert {"signal", "value", "limit"} <= found["evidence"][0].keys()
    assert found["loss_usd_per_month"]["low"] <= found["loss_usd_per_month"]["high"]
    assert found["remedy"]
    assert found["proof_command"].startswith("mileage ")


def test_a_price_that_is_given_makes_the_loss_a_figure(tmp_path: Path) -> None:
    _, out = doctor(tmp_path, IDLE, "--json", "--price", "1")
    loss = json.loads(out)["findings"][0]["loss_usd_per_month"]
    assert loss["high"] == 2 * 730.0
    assert loss["low"] <= loss["high"]


def test_without_a_price_the_loss_is_unknown(tmp_path: Path) -> None:
    document = IDLE | {"hardware": {"gpu": "Ascend 910B3", "count": 2}}
    code, out = doctor(tmp_path, document, "--json")
    assert (code, json.loads(out)["findings"][0]["loss_usd_per_month"]) == (1, None)


@pytest.mark.parametrize(
    ("document", "code", "verdict"),
    [
        pytest.param(BUSY, 0, "clear", id="busy and well"),
        pytest.param({}, 3, "not_enough_evidence", id="nothing is known"),
        pytest.param(
            {"signals": {"gpu_util_ratio": 0.3}}, 3, "not_enough_evidence", id="too little"
        ),
    ],
)
def test_verdicts_and_exit_codes(
    tmp_path: Path, document: dict[str, Any], code: int, verdict: str
) -> None:
    found, out = doctor(tmp_path, document, "--json")
    assert (found, json.loads(out)["verdict"]) == (code, verdict)
    assert json.loads(out)["findings"] == []


def test_people_see_the_number_first_then_evidence_and_remedy(tmp_path: Path) -> None:
    code, out = doctor(tmp_path, IDLE)
    assert code == 1
    assert out.splitlines()[0].startswith("$")
    for part in ("requests_running", "do", "prove it", "mileage explain CAP001"):
        assert part in out


def test_markdown_and_page_are_written(tmp_path: Path) -> None:
    markdown, page = tmp_path / "d.md", tmp_path / "d.html"
    doctor(tmp_path, IDLE, "--markdown", str(markdown), "--html", str(page))
    assert "| `requests_running` | `0` | `<= 0.05` |" in markdown.read_text()
    assert "idle_capacity" in page.read_text()


def test_every_rule_is_told_where_it_is_asked_for(tmp_path: Path) -> None:
    _, out = doctor(tmp_path, {}, "--json", "--every-rule")
    rules = json.loads(out)["rules"]
    assert {rule["outcome"] for rule in rules} == {"not_enough_evidence"}
    assert len(rules) >= 67


@pytest.mark.parametrize(
    ("document", "key"),
    [
        pytest.param("{", "--facts", id="no JSON"),
        pytest.param("[]", "facts", id="no object"),
        pytest.param({"signal": {}}, "signal", id="an unknown section"),
        pytest.param({"signals": {"x": 1}}, "signals.x", id="an unknown name"),
        pytest.param({"signals": {"itl_p99_s": "1"}}, "signals.itl_p99_s", id="text for a number"),
        pytest.param(
            {"signals": {"itl_p99_s": {"min": 2, "max": 1}}}, "signals.itl_p99_s", id="no interval"
        ),
        pytest.param({"settings": {"enforce_eager": 1}}, "settings.enforce_eager", id="no flag"),
        pytest.param({"workload": {"kind": "x"}}, "workload.kind", id="not one of the words"),
        pytest.param({"comparisons": [{"arms": []}]}, "comparisons[0].arms", id="no arms"),
        pytest.param(
            {"comparisons": [{"arms": [{"arm": "a", "signals": {"y": 1}}, {"arm": "b"}]}]},
            "comparisons[0].arms[0].signals.y",
            id="in an arm",
        ),
    ],
)
def test_bad_documents_are_named(tmp_path: Path, document: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        doctor(tmp_path, document)
    assert caught.value.key == key


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    code, out = doctor(tmp_path, "\ufeff" + json.dumps(BUSY), "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "clear")


def test_a_key_that_is_none_is_told_what_it_may_be() -> None:
    with pytest.raises(ConfigError, match=r"is it hardware\.count or hardware\.gpu\?"):
        stated_facts(["gpus=4"])


def test_a_facts_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--facts", str(tmp_path / "none")])
    assert isinstance(result.exception, ConfigError)


def test_something_must_be_looked_at() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.key == "URL"


def test_facts_are_stated_on_the_command_line() -> None:
    assert stated_facts(["concurrency=256", "model.params_b=70", 'max_num_seqs={"min": 4}']) == {
        "workload": {"concurrency": 256},
        "model": {"params_b": 70},
        "settings": {"max_num_seqs": {"min": 4}},
    }
    assert stated_facts(["hpa.metric=gpu_util_ratio", "engine.version=0.10"]) == {
        "settings": {"hpa.metric": "gpu_util_ratio"},
        "engine": {"version": "0.10"},
    }
    assert stated_facts(["settings.hpa.max_replicas=null"]) == {
        "settings": {"hpa.max_replicas": None}
    }


@pytest.mark.parametrize("option", ["concurrency", "=1", "nope=1", "kind=sometimes", "rate_rps=x"])
def test_stated_facts_that_cannot_be_are_named(option: str) -> None:
    with pytest.raises(ConfigError, match="--fact"):
        stated_facts([option])


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "–"),
        (True, "yes"),
        (0.98, "0.98"),
        (12_345_678, "12,345,678"),
        ({"min": 1}, "at least 1"),
        ({"max": 0.5}, "at most 0.5"),
        ({"min": 1, "max": 2}, "1 to 2"),
        ([0.1, {"min": 1}], "0.1, at least 1"),
        ({"series": [{"value": 1}, {"value": 5}, {"value": 3}]}, "1 … 3"),
        ("text", "text"),
    ],
)
def test_values_for_people(value: Any, told: str) -> None:
    assert shown_value(value) == told


def test_explain_shows_a_page_by_id_name_or_cause() -> None:
    for asked in ("CAP001", "cap001", "no_traffic", "idle_capacity"):
        result = CliRunner().invoke(app, ["explain", asked])
        assert result.exit_code == 0
        assert "What to do" in result.stdout
    result = CliRunner().invoke(app, ["explain", "idle"])
    assert isinstance(result.exception, ConfigError)
    assert "idle_capacity" in str(result.exception)


def test_explain_lists_all_rules() -> None:
    result = CliRunner().invoke(app, ["explain", "--json"])
    assert len(json.loads(result.stdout)["rules"]) >= 67


def test_a_contract_of_the_configuration_is_the_price(tmp_path: Path) -> None:
    config = tmp_path / "mileage.toml"
    config.write_text(
        '[[billing.prices]]\ngpu = "a100-80gb"\nusd_per_gpu_hour = 1.5\nname = "ours"\n'
    )
    _, out = doctor(tmp_path, IDLE, "--json", "--config", str(config))
    found = json.loads(out)["findings"][0]
    assert found["loss_usd_per_month"]["high"] == 2 * 1.5 * 730.0
    assert "ours" in found["loss_basis"]
