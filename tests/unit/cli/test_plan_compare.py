"""`mileage plan compare`: what files say, what is filled in, and by whose word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

LAPTOP = """
[[deployments]]
name = "laptop"
model = "my-model"
form = "GGUF Q4_K_M, llama.cpp, laptop"
memory_gb = 6.2
usd_per_hour = 0.06
requests_per_s = 0.05
requests_per_task = 2
quality = { score = 0.4, measure = "MMLU-Pro", source = "our own run" }
"""
CLOUD = """
[[deployments]]
name = "cloud"
model = "Llama-3.1-8B-Instruct"
gpu = "l40s"
precision = "int4"
"""
TRACE = ("--trace", "synthetic:rate=2,duration=60s,seed=1")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", "compare", *arguments], env={"NO_COLOR": "1"})


def written(tmp_path: Path, *parts: str) -> str:
    path = tmp_path / "deployments.toml"
    path.write_text("".join(parts), "utf-8")
    return str(path)


def document(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["deployments"]
    return found


def test_what_the_file_says_is_taken_as_it_is(tmp_path: Path) -> None:
    laptop, cloud = document(written(tmp_path, LAPTOP, CLOUD))
    assert laptop["memory_bytes"] == 6.2e9
    # 0.06 USD an hour, 180 requests an hour; two of them a task; 0.4 of the tasks are solved.
    assert laptop["usd_per_request"] == pytest.approx(0.06 / 180)
    assert laptop["usd_per_task"] == pytest.approx(2 * 0.06 / 180)
    assert laptop["usd_per_solved_task"] == pytest.approx(2 * 0.06 / 180 / 0.4)
    assert laptop["requests_per_card_day"] == pytest.approx(0.05 * 86_400)
    assert (laptop["memory"], laptop["sources"]) == (None, {})
    assert cloud["requests_per_s"] is None
    assert cloud["usd_per_task"] is None


def test_what_it_leaves_out_is_filled_in_with_its_source(tmp_path: Path) -> None:
    _, cloud = document(written(tmp_path, LAPTOP, CLOUD))
    assert cloud["form"] == "int4, vllm, L40S"
    memory = cloud["memory"]
    assert (
        cloud["memory_bytes"]
        == memory["total"]
        == pytest.approx(sum(memory[part] for part in ("weights", "activations", "context", "kv")))
    )
    assert 1.0 < cloud["usd_per_hour"] < 3.0
    assert "public prices" in cloud["sources"]["usd_per_hour"]
    assert cloud["quality"]["score"] == 0.483
    assert "quantised it may answer worse" in cloud["sources"]["quality"]


def test_a_trace_tells_the_rate(tmp_path: Path) -> None:
    laptop, cloud = document(written(tmp_path, LAPTOP, CLOUD), *TRACE, "--slo", "ttft=5s,itl=200ms")
    assert laptop["requests_per_s"] == 0.05
    assert cloud["requests_per_s"] > 0.5
    assert cloud["sources"]["requests_per_s"].startswith("simulated: synthetic")
    assert cloud["usd_per_task"] == pytest.approx(
        cloud["usd_per_hour"] / 3600 / cloud["requests_per_s"]
    )
    assert cloud["on_front"] is not None


def test_scale_out_tells_what_each_replica_brings(tmp_path: Path) -> None:
    path = written(tmp_path, LAPTOP, CLOUD)
    trace = ("--trace", "synthetic:rate=20,duration=2m,seed=1")
    options = (*trace, "--slo", "ttft=2s,itl=60ms", "--gaps", "mean", "--scale-out", "1,2,4")
    laptop, cloud = document(path, *options)
    assert laptop["scale_out"] is None
    points = cloud["scale_out"]["points"]
    assert [point["replicas"] for point in points] == [1, 2, 4]
    # Each has its share of the requests, so that all last as long: nothing is shared but luck.
    assert [point["efficiency_ratio"] for point in points] == pytest.approx([1.0] * 3, rel=0.3)
    assert cloud["scale_out"]["knee"] is None
    shown = run(path, *options).output
    assert "replicas of cloud" in shown


def test_targets_that_a_card_cannot_meet_leave_it_no_request(tmp_path: Path) -> None:
    (cloud,) = document(written(tmp_path, CLOUD), *TRACE, "--slo", "itl=1ms")
    assert cloud["requests_per_s"] == 0.0
    assert cloud["sources"]["requests_per_s"].startswith("none: ")
    assert cloud["usd_per_task"] is None


def test_a_card_without_a_public_price_has_none(tmp_path: Path) -> None:
    (h20,) = document(written(tmp_path, CLOUD.replace("l40s", "h20")))
    assert h20["usd_per_hour"] is None
    assert "usd_per_hour" not in h20["sources"]


def test_a_fleet_costs_all_of_its_cards(tmp_path: Path) -> None:
    (one,) = document(written(tmp_path, CLOUD))
    (six,) = document(written(tmp_path, CLOUD, "tp = 2\nreplicas = 3\n"))
    assert six["cards"] == 6
    assert six["usd_per_hour"] == pytest.approx(6 * one["usd_per_hour"])


def test_people_see_columns_the_front_and_sources(tmp_path: Path) -> None:
    shown = run(written(tmp_path, LAPTOP, CLOUD)).output
    assert "laptop *" in shown
    assert "0.400 MMLU-Pro" in shown
    assert "cloud, usd_per_hour: median of" in shown


def test_scores_of_several_measures_make_no_front(tmp_path: Path) -> None:
    other = LAPTOP.replace('"laptop"', '"other"').replace('"MMLU-Pro"', '"HumanEval"')
    shown = run(written(tmp_path, LAPTOP, other)).output
    assert "scores of different measures" in shown


@pytest.mark.parametrize(
    ("parts", "key", "line"),
    [
        pytest.param(("measure = 'x'\n",), "deployments", None, id="no deployment"),
        pytest.param((LAPTOP, LAPTOP), "deployments[1].name", 13, id="one name twice"),
        pytest.param((CLOUD, "price = 2\n"), "deployments[0].price", 7, id="no such key"),
        pytest.param((CLOUD, "tp = 0\n"), "deployments[0].tp", 7, id="no card at all"),
        pytest.param((CLOUD, "tp = 3\n"), "deployments[0].tp", 7, id="heads that do not divide"),
        pytest.param(
            (CLOUD.replace("l40s", "l4000s"),), "deployments[0].gpu", 5, id="unknown card"
        ),
        pytest.param(
            (LAPTOP.replace("0.4,", "40,"),), "deployments[0].quality.score", 10, id="percent"
        ),
        pytest.param(
            (CLOUD.replace("8B", "405B"),), "deployments[0].tp", 2, id="a model that does not fit"
        ),
    ],
)
def test_a_bad_file_is_refused_by_key_and_line(
    tmp_path: Path, parts: tuple[str, ...], key: str, line: int | None
) -> None:
    error = run(written(tmp_path, *parts)).exception
    assert isinstance(error, ConfigError)
    assert error.key == key
    assert error.place is not None
    if line is not None:
        assert error.place.endswith(f"deployments.toml:{line}")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param(("--slo", "ttft=1s"), "--slo", id="targets and no traffic"),
        pytest.param((*TRACE,), "--slo", id="traffic and no targets"),
        pytest.param(("--scale-out", "1,2"), "--scale-out", id="replicas and no traffic"),
        pytest.param(("--scale-out", "few"), "--scale-out", id="no number of replicas"),
        pytest.param((*TRACE, "--slo", "ttft=soon"), "--slo", id="targets that are none"),
        pytest.param((*TRACE, "--slo", "ttft=9s", "--policy", "x"), "--policy", id="no policy"),
        pytest.param((*TRACE, "--slo", "ttft=9s", "--gaps", "x"), "--gaps", id="no such gaps"),
        pytest.param((*TRACE, "--slo", "ttft=9s", "--attainment", "7"), "--attainment", id="700 %"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    tmp_path: Path, options: tuple[str, ...], key: str
) -> None:
    error = run(written(tmp_path, CLOUD), *options).exception
    assert isinstance(error, ConfigError)
    assert error.key == key
