"""Allocations that fail, weights that are offloaded, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.memory_budget import RULES

FINDING, CLEAR, OPEN = "finding", "clear", "not_enough_evidence"


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"signals": {"oom_count": {"min": 1}}}, FINDING, id="out of memory"),
        pytest.param(
            {"signals": {"alloc_failed_gb": 2, "gpu_mem_free_gb": 0.4}},
            FINDING,
            id="more was asked for than was free",
        ),
        pytest.param(
            {"logs": ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]},
            FINDING,
            id="PyTorch says so",
        ),
        pytest.param(
            {"logs": ["allocating 900 MiB on device 0: cudaMalloc failed: out of memory"]},
            FINDING,
            id="llama.cpp says so",
        ),
        pytest.param(
            {
                "logs": [
                    "ValueError: Free memory on device (9.1/23.6 GiB) on startup is less than "
                    "desired GPU memory utilization (0.9, 21.3 GiB)."
                ]
            },
            FINDING,
            id="another process holds what the engine wants",
        ),
        pytest.param(
            {"logs": ["Last state: Terminated, Reason: OOMKilled"]},
            OPEN,
            id="the host's memory, not the card's",
        ),
        pytest.param(
            {"signals": {"oom_count": 0, "gpu_mem_free_gb": 0.3}},
            CLEAR,
            id="little free and nothing failed: engines take it all",
        ),
        pytest.param(
            {"signals": {"gpu_mem_used_gb": 79.5}, "settings": {"gpu_memory_utilization": 0.97}},
            OPEN,
            id="a full card alone",
        ),
        pytest.param(
            {"logs": ["ValueError: No available memory for the cache blocks."]},
            OPEN,
            id="no room for the cache is another matter",
        ),
    ],
)
def test_headroom(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("MEM001", facts).outcome == outcome


def test_the_new_share_leaves_room_for_what_failed() -> None:
    facts = {
        "hardware": {"memory_gb": 40},
        "settings": {"gpu_memory_utilization": 0.95},
        "signals": {"oom_count": 1, "alloc_failed_gb": 2.5, "gpu_mem_free_gb": 1.0},
    }
    found = opinion("MEM001", facts)
    assert found.severity == "critical"
    assert [(change.setting, change.value) for change in found.changes] == [
        ("gpu_memory_utilization", 0.9)
    ]


CARD = {"gpu": "H100", "count": 2, "memory_gb": 80}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "model": {"params_b": 32, "dtype": "bf16"},
                "hardware": CARD,
                "settings": {"cpu_offload_gb": 20, "tensor_parallel_size": 2},
            },
            FINDING,
            id="half of each card would hold them",
        ),
        pytest.param(
            {
                "model": {"params_b": 400, "dtype": "bf16"},
                "hardware": CARD,
                "settings": {"cpu_offload_gb": 320, "tensor_parallel_size": 2},
            },
            CLEAR,
            id="they do not fit: it is what makes it run",
        ),
        pytest.param(
            {
                "model": {"params_b": 32, "dtype": "bf16"},
                "hardware": CARD,
                "settings": {"cpu_offload_gb": 0},
            },
            CLEAR,
            id="nothing is offloaded",
        ),
        pytest.param(
            {
                "settings": {"cpu_offload_gb": 10},
                "signals": {"gpu_mem_free_gb": 31},
            },
            FINDING,
            id="three times what is offloaded is free on the card",
        ),
        pytest.param(
            {
                "comparisons": [
                    {
                        "arms": [
                            {
                                "arm": "a",
                                "settings": {"cpu_offload_gb": 8},
                                "signals": {"output_tokens_per_s": 3},
                                "current": True,
                            },
                            {
                                "arm": "b",
                                "settings": {"cpu_offload_gb": 0},
                                "signals": {"output_tokens_per_s": 55},
                            },
                        ]
                    }
                ]
            },
            FINDING,
            id="without it the same setup runs, and faster",
        ),
        pytest.param(
            {"model": {"params_b": 32, "dtype": "bf16"}, "hardware": CARD},
            OPEN,
            id="whether anything is offloaded is not known",
        ),
    ],
)
def test_offload(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("MEM002", facts).outcome == outcome
