"""Steps that wait for the CPU, and their neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.host_graphs import RULES as GRAPHS
from mileage.doctor.rules.host_step import RULES as STEP
from mileage.doctor.run import diagnose

FULL_CORE = {"engine_process_cpu_ratio": 1.0}


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*STEP, *GRAPHS) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"signals": FULL_CORE | {"gpu_util_ratio": 0.55}}, "finding", id="full core, idle GPU"
        ),
        pytest.param(
            {"signals": FULL_CORE | {"gpu_util_ratio": {"max": 0.5}}},
            "finding",
            id="the GPU is known to be low by a bound only",
        ),
        pytest.param(
            {"signals": {"engine_process_cpu_ratio": {"min": 0.95}, "gpu_util_ratio": [0.4, 0.3]}},
            "finding",
            id="bounds and one value for each GPU",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"gpu_util_ratio": {"min": 0.5, "max": 0.97}}},
            "not_enough_evidence",
            id="a bound wider than the threshold tells nothing",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"sm_active_ratio": 0.94, "gpu_util_ratio": 0.99}},
            "clear",
            id="a full core beside a saturated GPU is a busy wait",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"gpu_util_ratio": 0.6, "dram_active_ratio": 0.85}},
            "clear",
            id="memory bandwidth is used up, whatever NVML says",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"requests_running": 0, "requests_waiting": 0}},
            "clear",
            id="a core that spins without requests is no step",
        ),
        pytest.param(
            {
                "engine": {"name": "llama.cpp", "variant": "embedded"},
                "signals": {"engine_process_cpu_ratio": 7.9, "gpu_util_ratio": 0},
            },
            "clear",
            id="an engine on the CPU may use all cores",
        ),
        pytest.param(
            {"engine": {"name": "llama.cpp"}, "signals": {"engine_process_cpu_ratio": 7.9}},
            "not_enough_evidence",
            id="full cores with no GPU in sight",
        ),
        pytest.param(
            {
                "hardware": {"mig_profile": "2g.20gb"},
                "signals": FULL_CORE | {"gpu_util_ratio": 0, "requests_running": 8},
            },
            "not_enough_evidence",
            id="utilisation reads 0 on MIG whatever runs",
        ),
        pytest.param(
            {
                "hardware": {"mig_profile": "2g.20gb"},
                "signals": FULL_CORE | {"gpu_util_ratio": 0, "gr_engine_active_ratio": 0.4},
            },
            "finding",
            id="on MIG the profiling metric tells",
        ),
        pytest.param(
            {
                "engine": {"name": "sglang"},
                "signals": FULL_CORE | {"gpu_util_ratio": 0.2, "requests_running": 0.3},
            },
            "not_enough_evidence",
            id="a scheduler that polls, and a card without requests most of the time",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"gpu_util_ratio": [0.9, 0.3], "requests_running": [60, 4]}},
            "not_enough_evidence",
            id="a rank without work idles",
        ),
        pytest.param(
            {"signals": {"step_host_gap_s": 0.008, "step_time_s": 0.02}},
            "finding",
            id="the gap is a large part of the step",
        ),
        pytest.param(
            {"signals": FULL_CORE | {"step_host_gap_s": 0.0005, "step_time_s": 0.02}},
            "clear",
            id="the gap is a small part of the step",
        ),
        pytest.param(
            {
                "settings": {"api_server_mode": "in_process"},
                "workload": {"concurrency": 64},
                "signals": {"gpu_util_ratio": 0.5},
            },
            "finding",
            id="HTTP inside the engine's loop while the GPU idles",
        ),
        pytest.param(
            {"settings": {"api_server_mode": "in_process"}},
            "not_enough_evidence",
            id="the setting alone is no loss",
        ),
        pytest.param(
            {
                "model": {"params_b": 1, "dtype": "bf16"},
                "hardware": {"gpu": "H100", "count": 1},
                "signals": {"itl_mean_s": 0.04, "requests_running": 40, "gpu_util_ratio": 0.4},
            },
            "finding",
            id="steps many times as long as the weights ask for, and nothing else explains them",
        ),
        pytest.param(
            {
                "model": {"params_b": 1, "dtype": "bf16"},
                "hardware": {"gpu": "H100", "count": 1},
                "settings": {"cpu_offload_gb": 10},
                "signals": {"itl_mean_s": 0.04, "requests_running": 40, "gpu_util_ratio": 0.4},
            },
            "not_enough_evidence",
            id="the same with offloaded weights",
        ),
        pytest.param(
            {"signals": {"engine_process_cpu_ratio": 0.3, "gpu_util_ratio": 0.3}},
            "not_enough_evidence",
            id="the engine's core has room",
        ),
    ],
)
def test_engine_host_bound(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("HOST001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("comparisons", "outcome"),
    [
        pytest.param(
            arms(
                {"signals": {"sm_clock_mhz": 1980, "output_tokens_per_s": 1000}},
                {"signals": {"sm_clock_mhz": 1200, "output_tokens_per_s": 960}},
            ),
            "finding",
            id="a far lower clock costs 4 %",
        ),
        pytest.param(
            arms(
                {"signals": {"sm_clock_mhz": 1980, "output_tokens_per_s": 1000}},
                {"signals": {"sm_clock_mhz": 1200, "output_tokens_per_s": 640}},
            ),
            "not_enough_evidence",
            id="the throughput follows the clock",
        ),
        pytest.param(
            arms(
                {"settings": {"api_server_mode": "in_process"}, "signals": {"itl_mean_s": 0.06}},
                {
                    "settings": {"api_server_mode": "separate_process"},
                    "signals": {"itl_mean_s": 0.03},
                },
            ),
            "finding",
            id="an API server of its own halves the time between tokens",
        ),
        pytest.param(
            arms(
                {
                    "workload": {"kind": "offline"},
                    "settings": {"api_server_mode": "none"},
                    "signals": {"gpu_util_ratio": 0.95},
                },
                {
                    "workload": {"kind": "online"},
                    "settings": {"api_server_mode": "in_process"},
                    "signals": {"gpu_util_ratio": 0.5},
                },
            ),
            "finding",
            id="without a server the card is busy, with one in the same process it is not",
        ),
        pytest.param(
            arms(
                {
                    "workload": {"concurrency": 16},
                    "signals": {
                        "requests_running": 16,
                        "requests_per_s": 5.4,
                        "gpu_util_ratio": 0.3,
                    },
                },
                {
                    "workload": {"concurrency": 32},
                    "signals": {
                        "requests_running": 32,
                        "requests_per_s": 5.5,
                        "gpu_util_ratio": 0.3,
                    },
                },
            ),
            "not_enough_evidence",
            id="a plateau, and how busy the card is now is not said",
        ),
        pytest.param(
            arms(
                {"hardware": {"gpu": "A100"}, "signals": {"output_tokens_per_s": 900}},
                {"hardware": {"gpu": "H100"}, "signals": {"output_tokens_per_s": 930}},
            ),
            "finding",
            id="a card with far more bandwidth is no faster",
        ),
        pytest.param(
            arms(
                {"hardware": {"gpu": "A100"}, "signals": {"output_tokens_per_s": 900}},
                {"hardware": {"gpu": "H100"}, "signals": {"output_tokens_per_s": 1500}},
            ),
            "not_enough_evidence",
            id="a card with more bandwidth is faster",
        ),
    ],
)
def test_experiments_tell_the_pace_of_the_cpu(comparisons: Any, outcome: str) -> None:
    assert opinion("HOST001", {"comparisons": comparisons}).outcome == outcome


def test_a_larger_batch_that_brings_nothing_on_an_idle_card_is_the_cpu() -> None:
    plateau = arms(
        {"signals": {"requests_running": 16, "requests_per_s": 5.4}},
        {"signals": {"requests_running": 32, "requests_per_s": 5.5}},
    )
    facts: dict[str, Any] = {"signals": {"gpu_util_ratio": 0.3}, "comparisons": plateau}
    assert opinion("HOST001", facts).outcome == "finding"
    split = facts | {"settings": {"tensor_parallel_size": 4}}
    assert opinion("HOST001", split).outcome == "not_enough_evidence"


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"settings": {"enforce_eager": True}}, "finding", id="the flag is set"),
        pytest.param(
            {"settings": {"enforce_eager": False}, "signals": {"graph_replay_ratio": 0}},
            "finding",
            id="no step is replayed although the flag is off",
        ),
        pytest.param(
            {"engine": {"name": "vllm"}, "settings": {"enforce_eager": None}},
            "clear",
            id="not set: graphs are the default",
        ),
        pytest.param(
            {"settings": {"enforce_eager": True}, "logs": ["detected platform cpu."]},
            "clear",
            id="a CPU back end has no graphs",
        ),
        pytest.param(
            {"settings": {"enforce_eager": True}, "model": {"architecture": ["embedding"]}},
            "not_enough_evidence",
            id="an embedding model has no decode steps",
        ),
        pytest.param(
            {"logs": ["[TP0] Decode batch. #running-req: 3, cuda graph: False, gen"]},
            "finding",
            id="SGLang says so in its decode line",
        ),
        pytest.param(
            {"logs": ["[TP0] Prefill batch. #new-seq: 3, cuda graph: False"]},
            "not_enough_evidence",
            id="prefills run without a graph as a rule",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"enforce_eager": True}, "signals": {"itl_mean_s": 0.03}},
                    {"settings": {"enforce_eager": False}, "signals": {"itl_mean_s": 0.0299}},
                )
            },
            "clear",
            id="a run with graphs is no faster",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"enforce_eager": True}, "signals": {"itl_mean_s": 0.03}},
                    {"settings": {"enforce_eager": False}, "signals": {"itl_mean_s": 0.012}},
                )
            },
            "finding",
            id="a run with graphs is far faster",
        ),
    ],
)
def test_enforce_eager_on(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("HOST002", facts).outcome == outcome


def test_the_loss_is_what_the_run_with_graphs_gains() -> None:
    facts = {
        "comparisons": arms(
            {"settings": {"enforce_eager": True}, "signals": {"output_tokens_per_s": 600}},
            {"settings": {"enforce_eager": False}, "signals": {"output_tokens_per_s": 1000}},
        )
    }
    waste = opinion("HOST002", facts).waste_ratio
    assert waste is not None
    assert (waste.low, waste.high) == pytest.approx((0.4, 0.4))


def test_graphs_that_are_off_come_before_the_full_core_that_they_cause() -> None:
    facts = {
        "engine": {"name": "vllm"},
        "settings": {"enforce_eager": True},
        "signals": FULL_CORE | {"gpu_util_ratio": 0.4, "requests_running": 4},
    }
    first, *others = diagnose(decode_facts(facts)).findings
    assert first.cause == "enforce_eager_on"
    assert {each.consequence_of for each in others if each.cause == "engine_host_bound"} == {
        "HOST002"
    }
