"""What a set-up is started with: the command's flags, and what no flag says."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.cli.plan_engine import engine_start
from mileage.planner.candidate import Candidate, Disaggregation, HostTier, Sharing
from mileage.sim.engine_features import AdaptersConfig, SpeculationConfig


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        pytest.param({"tensor_parallel": 4}, "--tensor-parallel-size 4", id="GPUs of a layer"),
        pytest.param({"pipeline_parallel": 2}, "--pipeline-parallel-size 2", id="stages"),
        pytest.param({"running_max": 64}, "--max-num-seqs 64", id="requests at once"),
        pytest.param({"step_tokens_max": 512}, "--max-num-batched-tokens 512", id="a step"),
        pytest.param({"weights": "fp8"}, "--quantization fp8", id="weights of 8 bits"),
        pytest.param({"weights": "int4"}, "--quantization awq", id="weights of 4 bits"),
        pytest.param({"kv": "fp8"}, "--kv-cache-dtype fp8_e4m3", id="a cache of 8 bits"),
        pytest.param({"prefix_cache": False}, "--no-enable-prefix-caching", id="no prefix cache"),
        pytest.param({"graph_sizes": "none"}, "--enforce-eager", id="no CUDA graphs"),
        pytest.param({"graph_sizes": (1, 8)}, "--cudagraph-capture-sizes 1 8", id="two of them"),
        pytest.param(
            {"tuning": "lora", "adapters": AdaptersConfig(slots=6)}, "--max-loras 6", id="adapters"
        ),
        pytest.param(
            {"replicas": 2, "sharing": Sharing(replicas=2)},
            "--gpu-memory-utilization 0.45",
            id="a half of the memory",
        ),
    ],
)
def test_flags_of_vllm(fields: dict[str, Any], flags: str) -> None:
    start = engine_start("vllm", "some/model", Candidate(gpu="A10", **fields), 0.9)
    assert start.command.startswith("vllm serve some/model ") or "vllm serve" in start.command
    assert flags in start.command


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"replicas": 3}, "3 replicas", id="several replicas"),
        pytest.param({"data_parallel": 8}, "--data-parallel-size 8", id="DP attention"),
        pytest.param({"expert_parallel": 8}, "--enable-expert-parallel", id="experts apart"),
        pytest.param({"speculation": SpeculationConfig(draft_tokens=3)}, "3 tokens", id="drafts"),
        pytest.param({"disaggregation": Disaggregation()}, "KV connector", id="engines apart"),
        pytest.param({"kv_tiers": (HostTier(gb_per_gpu=64.0),)}, "64 GB", id="a tier behind"),
        pytest.param(
            {"replicas": 2, "sharing": Sharing(replicas=2, mode="mig")}, "MIG", id="a part of a GPU"
        ),
        pytest.param({"policy": "model+wait"}, "policy model+wait", id="the governor"),
    ],
)
def test_what_no_flag_says_is_told(fields: dict[str, Any], told: str) -> None:
    start = engine_start("vllm", "some/model", Candidate(gpu="A10", **fields), 0.9)
    assert told in "; ".join(start.besides)


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_other_engines_have_commands_of_their_own(engine: str) -> None:
    start = engine_start(engine, "some/model", Candidate(gpu="A10", tensor_parallel=2), 0.9)
    assert "some/model" in start.command
    assert "vllm" not in start.command
