"""`mileage plan check`: what is known of a deployment, and what differs from its plan by money."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from mileage.cli.plan_check import register_check
from mileage.cli.plan_check_existing import known_of_facts, known_of_plan
from mileage.core.errors import ConfigError
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import SpeculationPlan
from mileage.planner.candidate import Candidate, Sharing
from mileage.sim.engine_features import SpeculationConfig

PLANNED = Candidate(gpu="L40S", weights="fp8", running_max=128, step_tokens_max=1024, replicas=2)
TRACE = "synthetic:rate=4,duration=60s,seed=1"
EXISTING = """\
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "l40s"
dtype = "bf16"
running_max = 16
step_tokens_max = 1024
"""

group = typer.Typer()
group.callback()(lambda: None)
register_check(group)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(group, ["check", *arguments], env={"NO_COLOR": "1"})


def plan_file(tmp_path: Path, **changes: Any) -> str:
    pick = {
        "config": msgspec.to_builtins(PLANNED),
        "usd_per_mtok": 0.34,
        "gpu_h_per_mtok": 0.2,
        "engine": {"kind": "vllm"},
        "label": "what is not looked at",
    }
    tree: dict[str, Any] = {
        "model": "meta-llama/Llama-3.1-8B",
        "trace": {"name": TRACE, "requests": 240},
        "targets": {"ttft_s": 3.0, "itl_s": 0.2, "gaps": "mean", "attainment_ratio": 0.95},
        "picks": {"cheapest": pick, "low_latency": None},
        **changes,
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(tree), "utf-8")
    return str(path)


def existing_file(tmp_path: Path, text: str = EXISTING, name: str = "existing.toml") -> str:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return str(path)


def test_differences_are_ordered_by_what_they_save(tmp_path: Path) -> None:
    result = run(plan_file(tmp_path), existing_file(tmp_path), "--by", "batch", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [each["field"] for each in found["differences"]] == ["running_max", "weights"]
    first, second = found["differences"]
    assert (first["existing"], first["planned"]) == (16, 128)
    assert first["saving_ratio"] > second["saving_ratio"] > 0.0
    # The plan went by 0.34 / 0.2 = 1.70 USD for a GPU and hour; there are two.
    assert found["existing_cost"]["usd_per_hour"] == pytest.approx(3.4)
    assert first["saving_usd_per_hour"] == pytest.approx(3.4 * first["saving_ratio"])
    assert "replicas" in found["unknown"]
    assert found["price_sources"] == {"L40S": "of the plan"}


def test_the_plans_own_trace_tells_the_rate(tmp_path: Path) -> None:
    result = run(plan_file(tmp_path), existing_file(tmp_path), "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert (found["by"], found["trace"]) == ("rate", TRACE)
    assert found["saving_ratio"] > 0.1
    assert found["planned_cost"]["usd_per_mtok"] < found["existing_cost"]["usd_per_mtok"]


def test_a_deployment_as_planned_differs_in_nothing(tmp_path: Path) -> None:
    text = EXISTING.replace('"bf16"', '"bf16"\nweights = "fp8"').replace("= 16", "= 128")
    result = run(plan_file(tmp_path), existing_file(tmp_path, text), "--by", "batch")
    assert result.exit_code == 0
    assert "nothing that is known differs" in result.output


def test_people_see_money_and_what_is_not_known(tmp_path: Path) -> None:
    result = run(plan_file(tmp_path), existing_file(tmp_path), "--by", "batch", "--price", "2")
    for text in ("running_max", "a month", "as planned, a token costs", "not known, and taken"):
        assert text in result.output
    assert "price of L40S: --price" in result.output


def test_facts_of_an_engine_are_read(tmp_path: Path) -> None:
    facts = json.dumps({"settings": {"max_num_seqs": 64, "enforce_eager": True}})
    path = existing_file(tmp_path, facts, "facts.json")
    found = json.loads(run(plan_file(tmp_path), path, "--by", "batch", "--json").stdout)
    assert {each["field"] for each in found["differences"]} == {"running_max", "graph_sizes"}
    assert "weights" in found["unknown"]


def test_another_card_has_its_own_price(tmp_path: Path) -> None:
    text = EXISTING.replace('"l40s"', '"h20"')
    result = run(plan_file(tmp_path), existing_file(tmp_path, text), "--by", "batch", "--json")
    found = json.loads(result.stdout)
    assert found["existing_cost"]["usd_per_hour"] is None
    (source,) = (text for name, text in found["price_sources"].items() if name != "L40S")
    assert source == "not known"
    card = next(each for each in found["differences"] if each["field"] == "gpu")
    assert card["saving_usd_per_hour"] is None


@pytest.mark.parametrize(
    ("arguments", "changes", "key"),
    [
        pytest.param(("--by", "chance"), {}, "--by", id="no such way"),
        pytest.param(("--pick", "low_latency"), {}, "--pick", id="a pick that the plan has not"),
        pytest.param(("--gpu", "h1000"), {}, "--gpu", id="no such card"),
        pytest.param((), {"picks": 3}, "PLAN", id="no document of a plan"),
        pytest.param((), {"targets": {}}, "--by", id="no targets to keep"),
        pytest.param((), {"trace": {}}, "--trace", id="no traffic"),
        pytest.param(
            (),
            {"picks": {"cheapest": {"config": {"gpu": "L40S", "colour": "red"}}}},
            "PLAN",
            id="of another version",
        ),
    ],
)
def test_a_bad_option_or_plan_is_refused_by_name(
    tmp_path: Path, arguments: tuple[str, ...], changes: dict[str, Any], key: str
) -> None:
    error = run(plan_file(tmp_path, **changes), existing_file(tmp_path), *arguments).exception
    assert isinstance(error, ConfigError)
    assert error.key == key


def test_a_bad_engine_plan_is_told_by_line(tmp_path: Path) -> None:
    text = EXISTING.replace("running_max = 16", "running_max = 0")
    error = run(plan_file(tmp_path), existing_file(tmp_path, text)).exception
    assert isinstance(error, ConfigError)
    assert (error.place or "").endswith("existing.toml:4")


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        pytest.param({}, {"prefix_cache": True, "kv": "bf16", "speculation": None}, id="vLLM's"),
        pytest.param({"weights": "gptq"}, {"weights": "int4"}, id="GPTQ"),
        pytest.param({"kv_dtype": "fp8_e5m2"}, {"kv": "fp8"}, id="a KV cache of 8 bits"),
        pytest.param(
            {"gpu": "h100"},
            {"gpu": "H100-SXM5-80GB", "running_max": 1024, "step_tokens_max": 8192},
            id="limits that vLLM has on the card",
        ),
        pytest.param({"graph_sizes": ()}, {"graph_sizes": "none"}, id="no graphs"),
        pytest.param({"instances": 2}, {"sharing": Sharing(replicas=2)}, id="copies on a card"),
    ],
)
def test_what_an_engine_plan_says(fields: dict[str, Any], known: dict[str, Any]) -> None:
    found = known_of_plan(EnginePlan(model="m", **fields))
    assert {key: found[key] for key in known} == known


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        pytest.param({}, "weights", id="weights are as the checkpoint says"),
        pytest.param({}, "running_max", id="limits hang on a card that is not told"),
        pytest.param({"kv_dtype": "int8"}, "kv", id="a KV cache that is not simulated"),
        pytest.param(
            {"speculation": SpeculationPlan(method="ngram", tokens=3)},
            "speculation",
            id="drafts whose acceptance nobody knows",
        ),
    ],
)
def test_what_an_engine_plan_does_not_say_is_not_known(
    fields: dict[str, Any], unknown: str
) -> None:
    assert unknown not in known_of_plan(EnginePlan(model="m", **fields))


def test_what_facts_say() -> None:
    document = {
        "hardware": {"gpu": "NVIDIA L40S"},
        "model": {"dtype": "bf16"},
        "settings": {
            "tensor_parallel_size": 2,
            "data_parallel_size": 2,
            "enable_expert_parallel": True,
            "max_num_batched_tokens": 4096.0,
            "enable_prefix_caching": False,
            "kv_cache_dtype": "fp8_e4m3",
            "quantization": "awq_marlin",
            "speculative.num_tokens": 4,
        },
    }
    drafting = msgspec.structs.replace(PLANNED, speculation=SpeculationConfig(draft_tokens=2))
    found = known_of_facts(document, drafting)
    assert found == {
        "gpu": "L40S",
        "tensor_parallel": 2,
        "data_parallel": 2,
        "step_tokens_max": 4096,
        "prefix_cache": False,
        "expert_parallel": 4,
        "weights": "int4",
        "kv": "fp8",
        "speculation": SpeculationConfig(draft_tokens=4),
    }
    assert "speculation" not in known_of_facts(document, PLANNED)
    assert "gpu" not in known_of_facts({"hardware": {"gpu": "a card of 2031"}}, PLANNED)
