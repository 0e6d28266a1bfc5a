"""promtool takes our rules, alerts fire when they are due, and Prometheus reads a real gateway."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.deploy.burn_rate import Objective
from mileage.deploy.grafana_dashboard import dashboard_json
from mileage.deploy.prometheus_rules import rule_groups
from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, free_port, run_mileage

pytestmark = pytest.mark.heavy

WAIT_S = 60.0
MODEL = "toy"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: apt install prometheus")
    return found


def promtool(*arguments: str, cwd: Path) -> None:
    ran = subprocess.run(
        [program("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = run_mileage("deploy", "prometheus", "--out", str(tmp_path / "p"), state=tmp_path / "s")
    assert made.returncode == 0, made.stderr
    return tmp_path / "p"


def test_promtool_takes_the_rules_and_the_configuration(files: Path) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", "mileage-rules.yml", cwd=files)
    promtool("check", "config", "prometheus.yml", cwd=files)


def slo(met: str, values: str) -> dict[str, str]:
    labels = f'model="{MODEL}",target="ttft",met="{met}"'
    return {"series": f"mileage_slo_requests_total{{{labels}}}", "values": values}


def due(alert: str, at: str, *labels: dict[str, str]) -> dict[str, Any]:
    """That the alert is due at the time with these labels, each time once."""
    found = [{"exp_labels": each, "exp_annotations": ANNOTATIONS.get(alert, {})} for each in labels]
    return {"alertname": alert, "eval_time": at, "exp_alerts": found}


ANNOTATIONS: dict[str, dict[str, str]] = {}
PAGE = {"severity": "page", "model": MODEL, "target": "ttft", "window": "1h"}
BUDGET = {"severity": "ticket", "tenant": "a", "unit": "usd", "period": "day"}


def ratio_of(text: str) -> str:
    return f"{MODEL}: {text} of streams miss their ttft target"


@pytest.fixture
def told_by_hand() -> Iterator[None]:
    """What the alerts of the tests say, their values put in by hand."""
    rules = {rule.alert: rule for group in rule_groups(Objective()) for rule in group.rules}
    told = {
        "MileageTargetsMissed1h": ratio_of("20%"),
        "MileageBudgetNearlySpent": "a has 5% of its budget left",
    }
    for alert, summary in told.items():
        given = rules[alert].annotations
        assert given is not None
        description = given["description"].replace("{{ $labels.unit }}", "usd")
        description = description.replace("{{ $labels.period }}", "day")
        ANNOTATIONS[alert] = {"summary": summary, "description": description}
    yield
    ANNOTATIONS.clear()


def target_cases() -> list[dict[str, Any]]:
    return [
        {
            "name": "a fifth of all streams misses its target for two hours",
            "interval": "1m",
            "input_series": [slo("yes", "0+80x120"), slo("no", "0+20x120")],
            "alert_rule_test": [due("MileageTargetsMissed1h", "2h", PAGE)],
        },
        {
            "name": "it did, and is over: the short window ends the alert at once",
            "interval": "1m",
            "input_series": [slo("yes", "0+80x60 4800+100x60"), slo("no", "0+20x60 1200+0x60")],
            "alert_rule_test": [due("MileageTargetsMissed1h", "70m")],
        },
        {
            "name": "one in a thousand is within the budget",
            "interval": "1m",
            "input_series": [slo("yes", "0+999x600"), slo("no", "0+1x600")],
            "alert_rule_test": [
                due("MileageTargetsMissed1h", "10h"),
                due("MileageTargetsMissed6h", "10h"),
                due("MileageTargetsMissed3d", "10h"),
            ],
        },
        {
            "name": "without a request nothing is missed",
            "interval": "1m",
            "input_series": [slo("yes", "5x600"), slo("no", "5x600")],
            "alert_rule_test": [due("MileageTargetsMissed1h", "10h")],
            "promql_expr_test": [
                {
                    "expr": "mileage:targets_missed:ratio_rate1h",
                    "eval_time": "10h",
                    "exp_samples": [],
                }
            ],
        },
        {
            "name": "where none was ever missed the share is 0, not unknown",
            "interval": "1m",
            "input_series": [slo("yes", "0+100x120")],
            "promql_expr_test": [
                {
                    "expr": "mileage:targets_missed:ratio_rate1h",
                    "eval_time": "2h",
                    "exp_samples": [
                        {
                            "labels": "mileage:targets_missed:ratio_rate1h"
                            f'{{model="{MODEL}",target="ttft"}}',
                            "value": 0,
                        }
                    ],
                }
            ],
        },
    ]


def budget_cases() -> list[dict[str, Any]]:
    budget = 'mileage_budget_{}{{tenant="a",unit="usd",period="day"}}'
    return [
        {
            "name": "a twentieth of a budget is left",
            "interval": "1m",
            "input_series": [
                {"series": budget.format("amount"), "values": "100x10"},
                {"series": budget.format("left"), "values": "50x4 5x6"},
            ],
            "alert_rule_test": [
                due("MileageBudgetNearlySpent", "2m"),
                due("MileageBudgetNearlySpent", "6m", BUDGET),
            ],
        },
    ]


@pytest.mark.usefixtures("told_by_hand")
def test_alerts_are_due_when_they_should_be_and_only_then(files: Path) -> None:
    tests = target_cases() + budget_cases()
    document = {"rule_files": ["mileage-rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (files / "tests.yml").write_bytes(msgspec.yaml.encode(document))
    promtool("test", "rules", "tests.yml", cwd=files)


def asked(base: str, path: str, **query: str) -> Any:
    url = f"{base}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return msgspec.json.decode(answer.read())["data"]


def wait_until_scraped(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, "Prometheus has ended"
        try:
            if asked(base, "query", query="count_over_time(mileage_build_info[1m]) > 2")["result"]:
                return
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail("Prometheus has not read the gateway")


def test_a_prometheus_reads_a_gateway_and_understands_every_panel(tmp_path: Path) -> None:
    binary = program("prometheus")
    with ScriptedEngine() as engine:
        config = f'[[engines]]\nkind = "vllm"\nurl = "{engine.url}"\nname = "one"\n'
        with Gateway(tmp_path, config=config) as gateway:
            made = run_mileage(
                *("deploy", "prometheus", "--out", str(tmp_path)),
                *("--target", str(urllib.parse.urlsplit(gateway.listening.admin_url).netloc)),
                state=tmp_path / "s",
            )
            assert made.returncode == 0, made.stderr
            path = tmp_path / "prometheus.yml"
            quick = path.read_text().replace("15s", "200ms").replace("30s", "200ms")
            path.write_text(quick)
            rules = tmp_path / "mileage-rules.yml"
            rules.write_text(rules.read_text().replace("interval: 1m", "interval: 200ms"))
            port = free_port()
            command = [
                binary,
                f"--config.file={path}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
            with subprocess.Popen(command) as process:
                try:
                    base = f"http://127.0.0.1:{port}"
                    wait_until_scraped(base, process)
                    check_queries(base)
                finally:
                    process.terminate()


def check_queries(base: str) -> None:
    groups = asked(base, "rules")["groups"]
    assert {group["name"] for group in groups} == {group.name for group in rule_groups(Objective())}
    errors = [r for group in groups for r in group["rules"] if r.get("lastError")]
    assert not errors
    up = asked(base, "query", query="mileage_replica_up")["result"]
    assert [series["metric"]["replica"] for series in up] == ["one"]
    for panel in msgspec.json.decode(dashboard_json())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            for name in ("model", "tenant", "replica"):
                query = query.replace(f"${name}", ".*")
            asked(base, "query", query=query)
    switches = asked(base, "query", query="mileage_process_context_switches_total")["result"]
    assert {series["metric"]["role"] for series in switches} == {"supervisor", "worker"}
