"""Grammars, logprobs, detokenising and sampling: work on what comes out."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.host_ensemble import RULES as ENSEMBLE
from mileage.doctor.rules.host_output import RULES as OUTPUT
from mileage.doctor.rules.sampling import RULES as SAMPLING
from mileage.doctor.rules.warm_up import RULES as WARM_UP


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*OUTPUT, *ENSEMBLE, *SAMPLING, *WARM_UP) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


def constrained(kind: str, itl_s: object) -> dict[str, Any]:
    return {"workload": {"structured_output": kind}, "signals": {"itl_mean_s": itl_s}}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"comparisons": arms(constrained("none", 0.02), constrained("regex", 0.09))},
            "finding",
            id="a grammar makes tokens four times slower",
        ),
        pytest.param(
            {"comparisons": arms(constrained("none", 0.02), constrained("regex", 0.021))},
            "clear",
            id="a few per cent are the mask itself",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    constrained("none", {"min": 0.01, "max": 0.05}), constrained("regex", 0.04)
                )
            },
            "not_enough_evidence",
            id="bounds that allow both",
        ),
        pytest.param(
            {
                "workload": {"structured_output": "json_schema"},
                "comparisons": arms(
                    {
                        "settings": {"structured_output_backend": "outlines"},
                        "signals": {"output_tokens_per_s": 90},
                    },
                    {
                        "settings": {"structured_output_backend": "xgrammar"},
                        "signals": {"output_tokens_per_s": 700},
                    },
                ),
            },
            "finding",
            id="another backend is far faster",
        ),
        pytest.param(
            {
                "workload": {"structured_output": "json_schema"},
                "signals": {"engine_process_cpu_ratio": 1.0},
            },
            "finding",
            id="constrained requests and a full engine core",
        ),
        pytest.param(
            {
                "model": {"params_b": 8, "dtype": "bf16"},
                "hardware": {"gpu": "H100", "count": 1},
                "workload": {"structured_output": "grammar"},
                "signals": {"itl_mean_s": 0.4},
            },
            "finding",
            id="a token takes far longer than reading the weights",
        ),
        pytest.param(
            {
                "settings": {"structured_output_backend": "xgrammar"},
                "workload": {"structured_output": "json_schema"},
                "signals": {"gpu_util_ratio": 0.7, "itl_mean_s": 0.012},
            },
            "not_enough_evidence",
            id="compiled masks and a card with some headroom",
        ),
        pytest.param(
            {
                "settings": {"structured_output_backend": "outlines"},
                "workload": {"structured_output": "none"},
                "signals": {"gpu_util_ratio": 0.4},
            },
            "clear",
            id="nobody asks for structure",
        ),
        pytest.param(
            {
                "workload": {"structured_output": "json_schema", "slo_itl_s": 0.05},
                "settings": {"structured_output_backend": "outlines"},
                "signals": {"itl_p99_s": 0.03},
            },
            "not_enough_evidence",
            id="the agreed latency is kept",
        ),
    ],
)
def test_guided_decoding_cpu(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("GRAM001", facts).outcome == outcome


def logprobs(count: int, tokens_per_s: float) -> dict[str, Any]:
    return {"workload": {"logprobs": count}, "signals": {"output_tokens_per_s": tokens_per_s}}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"workload": {"logprobs": {"min": 200}}}, "finding", id="hundreds, at least"),
        pytest.param(logprobs(20, 20000), "finding", id="few, at a rate that fills a core"),
        pytest.param(logprobs(20, 100), "not_enough_evidence", id="twenty, at a low rate"),
        pytest.param(logprobs(1, 9000), "clear", id="one each"),
        pytest.param(
            {"comparisons": arms(logprobs(5, 2000), logprobs(50, 900))},
            "finding",
            id="the throughput falls as their number rises",
        ),
        pytest.param(
            {"comparisons": arms(logprobs(5, 2000), logprobs(500, 1990))},
            "clear",
            id="the throughput stays as their number rises",
        ),
    ],
)
def test_logprobs_postprocessing(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("LOGP001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {
                "signals": {
                    "triton_exec_infer_count": 100,
                    "triton_exec_postprocess_count": 30000,
                    "triton_queue_postprocess_s": 600,
                    "itl_mean_s": 0.04,
                }
            },
            "finding",
            id="a token waits for half of the time between tokens",
        ),
        pytest.param(
            {
                "signals": {
                    "triton_exec_infer_count": 100,
                    "triton_exec_postprocess_count": 30000,
                }
            },
            "not_enough_evidence",
            id="many executions alone are streaming",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"triton.dynamic_batching_delay_s": 0.03},
                        "signals": {"itl_mean_s": 0.07},
                    },
                    {
                        "settings": {"triton.dynamic_batching_delay_s": None},
                        "signals": {"itl_mean_s": 0.03},
                    },
                )
            },
            "finding",
            id="without the delay tokens come twice as fast",
        ),
        pytest.param(
            {
                "settings": {"triton.decoupled": True, "triton.dynamic_batching_delay_s": 0.02},
                "signals": {"itl_mean_s": 0.035},
            },
            "finding",
            id="a delay for batches on every streamed token",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"triton.postprocessing_instances": 1},
                        "signals": {"output_tokens_per_s": 500},
                    },
                    {
                        "settings": {"triton.postprocessing_instances": 8},
                        "signals": {"output_tokens_per_s": 1500},
                    },
                )
            },
            "finding",
            id="more instances are three times faster",
        ),
        pytest.param(
            {
                "engine": {"name": "triton"},
                "settings": {"max_tokens_in_paged_kv_cache": 4000},
                "signals": {"requests_running": 1, "requests_waiting": 9},
            },
            "not_enough_evidence",
            id="nothing is known of the ensemble",
        ),
    ],
)
def test_ensemble_postprocessing(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("TRIT001", facts).outcome == outcome


def penalties(on: bool, tokens_per_s: float) -> dict[str, Any]:
    return {
        "workload": {"sampling_penalties": on},
        "signals": {"output_tokens_per_s": tokens_per_s},
    }


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"comparisons": arms(penalties(on=False, tokens_per_s=1000), penalties(True, 800))},
            "finding",
            id="penalties cost a fifth",
        ),
        pytest.param(
            {"comparisons": arms(penalties(on=False, tokens_per_s=1000), penalties(True, 985))},
            "clear",
            id="penalties cost nothing to speak of",
        ),
        pytest.param(
            {"workload": {"sampling_penalties": True}, "signals": {"gpu_util_ratio": 0.3}},
            "not_enough_evidence",
            id="penalties alone prove nothing",
        ),
    ],
)
def test_serial_sampling_cpu(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("SMPL001", facts).outcome == outcome


@pytest.mark.parametrize(
    ("signals", "outcome"),
    [
        pytest.param(
            {"startup_total_s": 80, "startup_first_response_s": 130},
            "finding",
            id="the first answer is late",
        ),
        pytest.param(
            {"startup_total_s": 80, "startup_first_response_s": {"min": 81}},
            "not_enough_evidence",
            id="the first answer is late by an unknown time",
        ),
        pytest.param(
            {"ttft_mean_s": {"series": [{"value": v} for v in (9.0, 0.3, 0.2, 0.3, 0.3)]}},
            "finding",
            id="only the first requests are slow",
        ),
        pytest.param(
            {"ttft_mean_s": {"series": [{"value": v} for v in (0.3, 0.3, 0.2, 9.0, 0.3)]}},
            "not_enough_evidence",
            id="a later one is slow",
        ),
    ],
)
def test_kernels_not_warm(signals: dict[str, Any], outcome: str) -> None:
    assert opinion("WARM001", {"signals": signals}).outcome == outcome
