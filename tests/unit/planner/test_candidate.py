"""Candidate: what it holds, what it refuses, and how it is called."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.planner.candidate import Candidate, Disaggregation, HostTier, Sharing
from mileage.sim.engine_features import AdaptersConfig, SpeculationConfig


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        pytest.param({}, 1, id="one GPU"),
        pytest.param({"replicas": 3, "tensor_parallel": 2}, 6, id="three replicas of two"),
        pytest.param(
            {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2}, 8, id="all axes"
        ),
        pytest.param(
            {"disaggregation": Disaggregation(prefill_engines=1, decode_engines=3)},
            4,
            id="engines apart",
        ),
        pytest.param({"replicas": 4, "sharing": Sharing(replicas=2)}, 2, id="two on a GPU"),
        pytest.param({"replicas": 2, "tuning": "full"}, 6, id="a fleet for each fine-tune"),
        pytest.param({"replicas": 2, "tuning": "lora"}, 2, id="one fleet for all adapters"),
    ],
)
def test_gpus(fields: dict[str, Any], gpus: int) -> None:
    assert Candidate(gpu="A10", **fields).gpus(fine_tunes=3) == gpus


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"replicas": 0}, "replicas", id="no replica"),
        pytest.param({"tensor_parallel": 0}, "tensor_parallel", id="no GPU"),
        pytest.param(
            {"replicas": 3, "sharing": Sharing(replicas=2)}, "replicas", id="one shares with nobody"
        ),
        pytest.param(
            {"replicas": 2, "tensor_parallel": 2, "sharing": Sharing(replicas=2)},
            "sharing",
            id="several GPUs are not shared",
        ),
        pytest.param({"adapters": AdaptersConfig()}, "adapters", id="adapters of no LoRA"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Candidate(gpu="A10", **fields)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("make", "key"),
    [
        pytest.param(lambda: Sharing(replicas=1), "sharing.replicas", id="nobody to share with"),
        pytest.param(
            lambda: Sharing(replicas=2, capacity_ratio=1.3),
            "sharing.capacity_ratio",
            id="slices of time gain nothing",
        ),
        pytest.param(lambda: HostTier(gb_per_gpu=0.0), "kv_tiers.gb_per_gpu", id="no memory"),
        pytest.param(
            lambda: Disaggregation(decode_engines=0),
            "disaggregation.decode_engines",
            id="no engine",
        ),
    ],
)
def test_parts_that_cannot_be_are_named(make: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key


def test_a_label_tells_what_is_unusual() -> None:
    plain = Candidate(gpu="A10", replicas=2)
    assert plain.label == "2 x A10, bf16, 256 seqs, 2048 tokens"
    rich = Candidate(
        gpu="H20",
        tensor_parallel=8,
        weights="fp8",
        kv="fp8",
        graph_sizes=(1, 2),
        chunked_prefill=False,
        prefix_cache=False,
        speculation=SpeculationConfig(draft_tokens=2),
        policy="model",
        tuning="lora",
        kv_tiers=(HostTier(gb_per_gpu=64.0),),
    )
    assert rich.label == (
        "1 x H20, TP8, fp8, KV fp8, 256 seqs, 2048 tokens, whole prompts, no prefix cache, "
        "2 CUDA graphs, 2 drafted, 64 GB behind each GPU, LoRA, policy model"
    )
    assert "no CUDA graphs" in Candidate(gpu="A10", graph_sizes="none").label
