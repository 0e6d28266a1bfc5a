"""Rules and dashboard: they read metrics that exist, and alerts are due when budgets burn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scripts.reference.metrics import families_under

from mileage.core.errors import ConfigError
from mileage.deploy.burn_rate import BURN_RATES, Objective
from mileage.deploy.grafana_dashboard import dashboard_json
from mileage.deploy.prometheus_rules import rule_groups, rules_yaml
from mileage.deploy.scrape_config import scrape_yaml

SOURCE = Path(__file__).resolve().parents[3] / "src"
METRICS = {metric.name: metric for metric in families_under(SOURCE)}
NAME = re.compile(r"\bmileage_[a-z0-9_]+")
RECORDED = re.compile(r"\bmileage:[a-z0-9_:]+")
RULES = [rule for group in rule_groups(Objective()) for rule in group.rules]
PANELS = list(msgspec.json.decode(dashboard_json())["panels"])


def dashboard_expressions() -> Iterator[str]:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["expr"]


EXPRESSIONS = [rule.expr for rule in RULES] + list(dashboard_expressions())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_exists_with_the_labels_that_are_asked_for(expression: str) -> None:
    for name in NAME.findall(expression):
        family = name.removesuffix("_bucket")
        assert family in METRICS, name
        for selector in re.findall(rf"{name}{{([^}}]*)}}", expression):
            labels = set(re.findall(r"(\w+)(?:=~|=|!=|!~)", selector))
            assert labels <= set(METRICS[family].labels), (name, labels)


def test_every_recorded_series_that_is_read_is_recorded() -> None:
    recorded = {rule.record for rule in RULES if rule.record is not None}
    read = {name for expression in EXPRESSIONS for name in RECORDED.findall(expression)}
    assert read <= recorded
    assert recorded, "some"


def test_alerts_have_a_severity_and_say_what_to_do() -> None:
    alerts = [rule for rule in RULES if rule.alert is not None]
    assert len({rule.alert for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule.labels is not None
        assert rule.labels["severity"] in ("page", "ticket")
        assert rule.annotations is not None
        assert rule.annotations["summary"]
        assert rule.annotations["description"].endswith(".")


def test_the_file_is_yaml_of_all_groups() -> None:
    read = msgspec.yaml.decode(rules_yaml(Objective()))
    assert [group["name"] for group in read["groups"]] == [
        group.name for group in rule_groups(Objective())
    ]
    assert all("for_" not in rule for group in read["groups"] for rule in group["rules"])


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        pytest.param(Objective(), [0.144, 0.06, 0.01], id="99 % over 30 days: as in the book"),
        pytest.param(Objective(ratio=0.999), [0.0144, 0.006, 0.001], id="99.9 %"),
        pytest.param(
            Objective(window_days=7), [0.0336, 0.014, 0.002333], id="a week has a smaller budget"
        ),
        pytest.param(
            Objective(ratio=0.9), [0.9, 0.6, 0.1], id="an alert that could never be due is lowered"
        ),
    ],
)
def test_burn_rates(objective: Objective, expected: list[float]) -> None:
    assert [objective.missed_ratio(rate) for rate in BURN_RATES] == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [0.4, 1.0, -1.0, float("nan")])
def test_an_objective_that_cannot_be(ratio: float) -> None:
    with pytest.raises(ConfigError, match="--objective"):
        Objective(ratio=ratio)


@pytest.mark.parametrize(
    "target", ["localhost", "localhost:0", "http://a:1", "a:b", ":80", "a:70000"]
)
def test_a_target_that_is_none(target: str) -> None:
    with pytest.raises(ConfigError, match="--target"):
        scrape_yaml([target], "rules.yml", token_file=None)


def test_the_token_is_named_and_not_held() -> None:
    read = msgspec.yaml.decode(scrape_yaml(["a:1", "b:2"], "r.yml", token_file="/etc/token"))
    (job,) = read["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/etc/token"}
    assert job["static_configs"] == [{"targets": ["a:1", "b:2"]}]


def test_panels_have_ids_of_their_own_a_place_and_the_chosen_data_source() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
            assert all(target["expr"] for target in panel["targets"])
            assert panel["description"]


def test_variables_are_those_that_the_panels_use() -> None:
    document: dict[str, Any] = msgspec.json.decode(dashboard_json())
    defined = {variable["name"] for variable in document["templating"]["list"]}
    text = dashboard_json().decode()
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == defined


def test_fragmentation_switches_and_throughput_are_side_by_side() -> None:
    titles = ("Fragmentation of the host's free memory", "Context switches", "Throughput")
    places = [
        next(panel["gridPos"] for panel in PANELS if panel["title"] == title) for title in titles
    ]
    assert len({place["y"] for place in places}) == 1
    assert [place["x"] for place in places] == [0, 8, 16]
