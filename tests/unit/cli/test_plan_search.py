"""`mileage plan`: picks, front and binding for people and programs, and refusals by option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

TRACE = "synthetic:rate=4,duration=40s"
SMALL = (
    *("--model", "llama-3.1-8b", "--trace", TRACE, "--gpu", "h100,l40s", "--tp", "1,2"),
    *("--gpus-max", "2", "--precision", "bf16,fp8", "--kv-dtype", "bf16"),
    *("--engine-max-seqs", "64", "--engine-tokens", "512,2048"),
)
TARGETS = ("--slo", "ttft=1s,itl=100ms")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", *arguments], env={"NO_COLOR": "1"})


def planned(*arguments: str) -> dict[str, Any]:
    done = run(*SMALL, *arguments, "--json")
    assert done.exit_code == 0, done.stderr or done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_document_has_picks_the_front_and_what_was_assumed() -> None:
    document = planned(*TARGETS)
    cheapest = document["picks"]["cheapest"]
    assert set(document["picks"]) == {"cheapest", "low_latency", "throughput", "balanced"}
    for key in ("config", "usd_per_mtok", "ttft_s", "itl_s", "interval"):
        assert cheapest[key] is not None
    assert cheapest["config"]["gpu"] in {"H100-SXM5-80GB", "L40S"}
    assert cheapest["keeps_goal"]
    memory = cheapest["memory_gb"]
    parts = sum(value for key, value in memory.items() if key != "usable")
    assert parts == pytest.approx(memory["usable"], abs=0.01)
    assert cheapest["binding"]["limits"]
    assert cheapest["engine"]["command"].startswith("vllm serve ")
    assert cheapest["label"] in {each["label"] for each in document["pareto"]}
    assert document["search"]["certain"]
    assert document["assumptions"]


@pytest.mark.parametrize(
    ("model", "served"),
    [
        pytest.param("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", id="by its short name"),
        pytest.param("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", id="by its name on the hub"),
        pytest.param("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", id="small"),
        pytest.param("llama-3.2-1b", "meta-llama/Llama-3.2-1B", id="as its owner writes it"),
    ],
)
def test_the_command_serves_the_model_that_was_asked_for(model: str, served: str) -> None:
    arguments = ("--trace", TRACE, "--gpu", "h100", "--tp", "1", "--gpus-max", "1")
    few = ("--engine-max-seqs", "64", "--engine-tokens", "2048", "--precision", "bf16", "--json")
    document = json.loads(run("--model", model, *arguments, *few).stdout)
    command = document["picks"]["cheapest"]["engine"]["command"]
    assert command.startswith(f"vllm serve {served} ")


def test_people_get_the_same_as_a_table(tmp_path: Path) -> None:
    report = tmp_path / "plan.html"
    done = run(*SMALL, *TARGETS, "--report", str(report))
    assert done.exit_code == 0, done.stderr or done.exception
    for text in ("cheapest", "bound by:", "Pareto front", "vllm serve", "KV cache", "USD per GPU"):
        assert text in done.stdout
    page = report.read_text()
    for text in ("A plan for", "Pareto front", "What binds them", "Assumptions", "plotly"):
        assert text in page


def test_a_given_price_ranks_a_card_that_has_none() -> None:
    h20 = ("--model", "llama-3.1-8b", "--trace", TRACE, "--gpu", "h20", "--tp", "1")
    rest = ("--gpus-max", "1", "--engine-max-seqs", "64", "--engine-tokens", "2048", "--json")
    without = json.loads(run(*h20, *rest).stdout)
    assert without["ranked_by"] == "gpu_hours"
    assert without["picks"]["cheapest"]["usd_per_mtok"] is None
    priced = json.loads(run(*h20, *rest, "--price", "h20=2").stdout)
    cheapest = priced["picks"]["cheapest"]
    assert priced["ranked_by"] == "usd"
    assert cheapest["usd_per_mtok"] == pytest.approx(2 * cheapest["gpu_h_per_mtok"], rel=1e-4)


def test_where_nothing_keeps_the_targets_it_says_so() -> None:
    done = run(*SMALL, "--slo", "itl=1ms")
    assert done.exit_code == 1
    assert "Nothing in that space can keep the targets" in done.stdout
    assert "out of reach (itl)" in done.stdout


def test_features_are_dimensions_too() -> None:
    document = planned(
        *TARGETS,
        *("--gpu", "h100", "--tp", "1", "--precision", "fp8", "--engine-tokens", "2048"),
        *("--gpus-max", "1", "--speculation", "none,3:0.7:1ms", "--policy", "off,model+wait"),
        *("--graph-sizes", "default", "--graph-sizes", "none", "--share", "none,2:mig"),
    )
    assert document["search"]["candidates"] == 16
    told = " ".join(document["assumptions"])
    assert "Proposed tokens" in told
    assert "MIG" in told


@pytest.mark.parametrize("processes", ["1", "2"])
def test_processes_change_nothing(processes: str) -> None:
    few = ("--gpu", "h100", "--tp", "1", "--precision", "fp8", "--gpus-max", "1")
    document = planned(*TARGETS, *few, "--processes", processes)
    cheapest = document["picks"]["cheapest"]
    assert (cheapest["gpus"], cheapest["config"]["weights"]) == (1, "fp8")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        pytest.param(("--model", "no-such-model"), "--model", id="a model that is none"),
        pytest.param(("--gpu", "no-such-card"), "--gpu", id="a card that is none"),
        pytest.param(("--slo", "ttft=soon"), "--slo", id="a target that is none"),
        pytest.param(("--tp", "0"), "--tp", id="no GPU"),
        pytest.param(("--precision", "bf17"), "--precision", id="a precision that is none"),
        pytest.param(("--kv-dtype", "int3"), "--kv-dtype", id="a KV precision that is none"),
        pytest.param(("--price", "h100"), "--price", id="a price without an amount"),
        pytest.param(("--price", "a10=1"), "--price", id="a price of another card"),
        pytest.param(("--speculation", "3"), "--speculation", id="drafts that nobody accepts"),
        pytest.param(("--disaggregation", "1"), "--disaggregation", id="one engine apart"),
        pytest.param(("--share", "2:often"), "--share", id="a mode of sharing that is none"),
        pytest.param(("--kv-tier", "0"), "--kv-tier", id="no memory behind the GPU"),
        pytest.param(("--policy", "luck"), "--policy", id="a policy that is none"),
        pytest.param(("--tuning", "lora"), "--tuning", id="adapters that nobody asks for"),
        pytest.param(("--attainment", "2"), "--attainment", id="more than all requests"),
        pytest.param(("--gaps", "p50"), "--gaps", id="gaps of another kind"),
        pytest.param(("--drain", "0s"), "--drain", id="no time to catch up"),
        pytest.param(("--chunked-prefill", "maybe"), "--chunked-prefill", id="neither yes nor no"),
        pytest.param(("--on", "the moon"), "--on", id="nowhere to simulate"),
        pytest.param(("--engine", "other"), "--engine", id="an engine that is none"),
        pytest.param(("--gpu", "t4", "--tp", "1", "--precision", "bf16"), "--gpu", id="no room"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(arguments: tuple[str, ...], key: str) -> None:
    done = run(*SMALL, *arguments)
    assert isinstance(done.exception, ConfigError), done.exception
    assert done.exception.key == key


@pytest.mark.parametrize("missing", ["--model", "--trace", "--gpu"])
def test_what_is_missing_is_named(missing: str) -> None:
    given = {"--model": "llama-3.1-8b", "--trace": TRACE, "--gpu": "h100"}
    del given[missing]
    done = run(*(part for pair in given.items() for part in pair))
    assert isinstance(done.exception, ConfigError)
    assert done.exception.key == missing
