"""A plan refuses what is out of range or contradicts itself, by the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import LoraPlan, SpeculationPlan, TritonPlan


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        pytest.param({"model": ""}, "model", "characters", id="no model"),
        pytest.param({"model": "--help"}, "model", "not begin with -", id="an option for a model"),
        pytest.param({"model": "a\nb"}, "model", "printable", id="a line's end in a name"),
        pytest.param({"port": 0}, "port", "1..65535", id="no port"),
        pytest.param(
            {"port": 65_535, "instances": 2}, "port", "up to 65534", id="no port for the second"
        ),
        pytest.param({"tensor_parallel": 0}, "tensor_parallel", "1..1024", id="no GPU"),
        pytest.param({"gpu_memory_ratio": 1.5}, "gpu_memory_ratio", "up to 1.0", id="more memory"),
        pytest.param(
            {"gpu_memory_ratio": float("nan")}, "gpu_memory_ratio", "up to 1.0", id="no number"
        ),
        pytest.param(
            {"running_max": 64, "step_tokens_max": 32},
            "step_tokens_max",
            "at least 64 (running_max)",
            id="a step shorter than its requests",
        ),
        pytest.param(
            {"chunked_prefill": False, "context_max_tokens": 8192, "step_tokens_max": 2048},
            "step_tokens_max",
            "at least 8192 (context_max_tokens)",
            id="a whole prompt in a shorter step",
        ),
        pytest.param({"graph_sizes": (4, 2)}, "graph_sizes", "ascend", id="sizes in disorder"),
        pytest.param({"graph_sizes": (2, 2)}, "graph_sizes", "ascend", id="a size twice"),
        pytest.param(
            {"graph_sizes": (64,), "step_tokens_max": 32},
            "graph_sizes",
            "up to 32 (step_tokens_max)",
            id="a graph larger than a step",
        ),
        pytest.param(
            {"preferred_batch_sizes": (8, 16), "running_max": 8},
            "preferred_batch_sizes",
            "up to 8 (running_max)",
            id="a batch larger than what runs",
        ),
    ],
)
def test_a_plan_is_refused(fields: dict[str, Any], key: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EnginePlan(**({"model": "m"} | fields))
    assert refused.value.key == key
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("table", "fields", "key"),
    [
        pytest.param(LoraPlan, {"slots": 0}, "lora.slots", id="no slot"),
        pytest.param(LoraPlan, {"adapters": {"a b": "/x"}}, "lora.adapters", id="a name's space"),
        pytest.param(LoraPlan, {"adapters": {"a": ""}}, "lora.adapters.a", id="no path"),
        pytest.param(SpeculationPlan, {"method": "draft"}, "speculation.model", id="no draft"),
        pytest.param(
            SpeculationPlan, {"method": "ngram", "model": "m"}, "speculation.model", id="a draft"
        ),
        pytest.param(TritonPlan, {"gpus": (0, 0)}, "triton.gpus", id="a GPU twice"),
    ],
)
def test_a_table_is_refused(table: type[Any], fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        table(**fields)
    assert refused.value.key == key


def test_instances_share_the_memory() -> None:
    plan = EnginePlan(model="m", gpu_memory_ratio=0.9, instances=4)
    assert plan.instance_memory_ratio == 0.225
    assert EnginePlan(model="m", instances=4).instance_memory_ratio is None


def test_a_model_without_a_name_is_called_by_its_last_part() -> None:
    assert EnginePlan(model="Qwen/Qwen3-8B").name == "Qwen3-8B"
    assert EnginePlan(model="/models/a/", served_name="b").name == "b"
