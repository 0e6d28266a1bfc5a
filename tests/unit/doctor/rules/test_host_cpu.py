"""Quotas, frontends and tokenizers, told from one another."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.host_cpu import RULES as QUOTA
from mileage.doctor.rules.host_frontend import RULES as FRONTEND


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*QUOTA, *FRONTEND) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6},
                "signals": {"threads_per_process_count": 64, "cpu_throttled_ratio": {"min": 0.1}},
            },
            "finding",
            id="ten threads for each granted core, and throttled",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6, "env.OMP_NUM_THREADS": None},
                "signals": {"cpu_cores_used": 5.9, "gpu_util_ratio": {"max": 0.5}},
            },
            "finding",
            id="no thread count set, all cores used, GPU idle",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6, "env.OMP_NUM_THREADS": 64},
                "signals": {"cpu_throttled_ratio": 0.2},
            },
            "finding",
            id="the variable itself asks for too many",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6, "env.OMP_NUM_THREADS": 4},
                "signals": {"cpu_visible_count": 64, "cpu_cores_used": 3},
            },
            "clear",
            id="the node is large, the pool is not",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6, "env.OMP_NUM_THREADS": None},
                "signals": {"cpu_visible_count": 64, "cpu_throttled_ratio": 0},
            },
            "clear",
            id="nothing is throttled",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 6, "env.OMP_NUM_THREADS": None},
                "signals": {"cpu_visible_count": 64, "sm_active_ratio": 0.95},
            },
            "clear",
            id="the GPU is saturated",
        ),
        pytest.param(
            {"engine": {"variant": "embedded"}, "signals": {"cpu_util_ratio": 1.0}},
            "clear",
            id="a CPU back end that uses its cores",
        ),
        pytest.param(
            {
                "engine": {"name": "llama.cpp", "variant": "cpu"},
                "settings": {"k8s.cpu_limit": 4},
                "signals": {"threads_per_process_count": 32, "cpu_throttled_ratio": 0.5},
            },
            "finding",
            id="a CPU back end with far more threads than its quota",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": {"min": 2, "max": 64}},
                "signals": {"cpu_visible_count": 64},
            },
            "not_enough_evidence",
            id="a limit known only within wide bounds",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"env.OMP_NUM_THREADS": None},
                        "signals": {"output_tokens_per_s": 400},
                    },
                    {
                        "settings": {"env.OMP_NUM_THREADS": 4},
                        "signals": {"output_tokens_per_s": 900},
                    },
                )
            },
            "finding",
            id="setting the variable doubles the throughput",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"k8s.cpu_limit": 6}, "signals": {"output_tokens_per_s": 15}},
                    {"settings": {"k8s.cpu_limit": 2}, "signals": {"output_tokens_per_s": 32}},
                )
            },
            "not_enough_evidence",
            id="a smaller limit that is faster proves nothing of threads",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"k8s.cpu_limit": 2}, "signals": {"output_tokens_per_s": 300}},
                    {"settings": {"k8s.cpu_limit": 8}, "signals": {"output_tokens_per_s": 900}},
                )
            },
            "finding",
            id="a larger limit trebles the throughput",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 4, "env.OMP_NUM_THREADS": None},
                "signals": {"cpu_visible_count": 64, "startup_graph_capture_s": 900},
            },
            "not_enough_evidence",
            id="only a start is seen: that is for the start-up rules",
        ),
    ],
)
def test_cpu_thread_oversubscription(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("CPU001", facts).outcome == outcome


def test_the_thread_count_is_the_quota_divided_by_the_workers() -> None:
    facts = {
        "settings": {"k8s.cpu_limit": 16, "tensor_parallel_size": 4, "env.OMP_NUM_THREADS": None},
        "signals": {"cpu_visible_count": 128, "cpu_throttled_ratio": 0.3},
    }
    (change,) = opinion("CPU001", facts).changes
    assert (change.setting, change.value) == ("env.OMP_NUM_THREADS", 4)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"signals": {"frontend_process_cpu_ratio": 1.0, "gpu_util_ratio": 0.4}},
            "finding",
            id="full frontend, idle GPU",
        ),
        pytest.param(
            {"signals": {"frontend_process_cpu_ratio": [0.4, 0.97]}},
            "finding",
            id="one of two processes is full",
        ),
        pytest.param(
            {"signals": {"frontend_process_cpu_ratio": 1.0, "sm_active_ratio": 0.95}},
            "clear",
            id="the GPU has no time left either",
        ),
        pytest.param(
            {
                "workload": {"mm_input": "image"},
                "signals": {"frontend_process_cpu_ratio": 1.0, "gpu_util_ratio": 0.4},
            },
            "not_enough_evidence",
            id="media in the prompts fill the same process",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"api_server_count": 1}, "signals": {"requests_per_s": 40}},
                    {"settings": {"api_server_count": 4}, "signals": {"requests_per_s": 90}},
                )
            },
            "finding",
            id="more API servers serve more",
        ),
        pytest.param(
            {
                "signals": {"frontend_process_cpu_ratio": 0.95},
                "comparisons": arms(
                    {"settings": {"api_server_count": 1}, "signals": {"requests_per_s": 40}},
                    {"settings": {"api_server_count": 4}, "signals": {"requests_per_s": 40.5}},
                ),
            },
            "clear",
            id="more API servers make no difference",
        ),
        pytest.param(
            {
                "workload": {"concurrency": 400},
                "settings": {"api_server_count": 1},
                "signals": {
                    "requests_running": 60,
                    "requests_waiting": 0,
                    "gpu_util_ratio": 0.4,
                },
            },
            "finding",
            id="most of the wanted requests do not get to the engine",
        ),
        pytest.param(
            {
                "workload": {"concurrency": 400},
                "settings": {"api_server_count": 1, "client.max_connections": None},
                "signals": {
                    "requests_running": 60,
                    "requests_waiting": 0,
                    "gpu_util_ratio": 0.4,
                },
            },
            "not_enough_evidence",
            id="the client's pool may hold them back as well",
        ),
        pytest.param(
            {
                "signals": {"gpu_util_ratio": 0.4},
                "comparisons": arms(
                    {"settings": {"tokenizer_threads": 1}, "signals": {"requests_per_s": 40}},
                    {"settings": {"tokenizer_threads": 8}, "signals": {"requests_per_s": 40.4}},
                ),
            },
            "finding",
            id="more tokenizer threads make no difference to an idle card",
        ),
        pytest.param(
            {"signals": {"frontend_process_cpu_ratio": {"min": 0.4}, "gpu_util_ratio": 0.4}},
            "not_enough_evidence",
            id="a bound below the threshold",
        ),
    ],
)
def test_frontend_cpu_bound(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("FRNT001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "settings": {"tokenizer_mode": "slow"},
                "workload": {"isl_tokens": {"min": 6000}},
                "signals": {"gpu_util_ratio": 0.5},
            },
            "finding",
            id="slow tokenizer, long prompts, idle GPU",
        ),
        pytest.param(
            {
                "workload": {"isl_tokens": 300},
                "settings": {"tokenizer_threads": 1},
                "signals": {"gpu_util_ratio": 0.4},
            },
            "not_enough_evidence",
            id="short prompts in one thread",
        ),
        pytest.param(
            {"signals": {"tokenise_s": 0.9, "ttft_mean_s": 1.6}},
            "finding",
            id="more than half of the time to first token",
        ),
        pytest.param(
            {
                "settings": {"tokenizer_threads": 2},
                "workload": {"rate_rps": 10},
                "signals": {"tokenise_s": 0.17},
            },
            "finding",
            id="arrivals times time fill the threads",
        ),
        pytest.param(
            {
                "settings": {"tokenizer_threads": 1},
                "workload": {"isl_tokens": 20000},
                "signals": {"ttft_mean_s": 9, "queue_time_mean_s": 8, "gpu_util_ratio": 0.5},
            },
            "clear",
            id="the wait is in the engine's queue",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"tokenizer_threads": 1}, "signals": {"ttft_mean_s": 3.0}},
                    {"settings": {"tokenizer_threads": 8}, "signals": {"ttft_mean_s": 1.0}},
                )
            },
            "finding",
            id="more threads are faster",
        ),
        pytest.param(
            {
                "settings": {"tokenizer_threads": 1},
                "workload": {"isl_tokens": 20000},
                "signals": {"gpu_util_ratio": 0.5},
                "comparisons": arms(
                    {"settings": {"tokenizer_threads": 1}, "signals": {"ttft_mean_s": 3.0}},
                    {"settings": {"tokenizer_threads": 8}, "signals": {"ttft_mean_s": 3.0}},
                ),
            },
            "clear",
            id="more threads make no difference",
        ),
        pytest.param(
            {
                "settings": {"tokenizer_threads": 1},
                "signals": {"requests_waiting": 0, "gpu_util_ratio": 0.3},
                "comparisons": arms(
                    {"workload": {"isl_tokens": 2000}, "signals": {"ttft_mean_s": 0.3}},
                    {"workload": {"isl_tokens": 40000}, "signals": {"ttft_mean_s": 6.0}},
                ),
            },
            "finding",
            id="the time to first token follows the prompt's length, and nothing waits",
        ),
        pytest.param(
            {
                "engine": {"name": "triton"},
                "signals": {"triton_queue_preprocess_s": 800, "triton_queue_postprocess_s": 4},
            },
            "finding",
            id="a Triton ensemble queues before its tokenise model",
        ),
    ],
)
def test_tokenizer_cpu_bound(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("TOK001", facts).outcome == outcome
