"""Kernels and formats of weights: slow ones, useless ones, and 16 bits at the memory wall."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.quantisation import RULES as FORMATS
from mileage.doctor.rules.weight_memory import RULES as MEMORY


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*FORMATS, *MEMORY) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


def flag(value: str | None, rate: float, **rest: Any) -> dict[str, Any]:
    return {"settings": {"quantization": value}, "signals": {"output_tokens_per_s": rate}} | rest


def stored(dtype: str, rate: float, **rest: Any) -> dict[str, Any]:
    return {"model": {"dtype": dtype}, "signals": {"output_tokens_per_s": rate}} | rest


INT4 = {"dtype": "int4"}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"model": INT4, "comparisons": arms(flag("gptq", 40, current=True), flag(None, 90))},
            "finding",
            id="twice as fast without the flag",
        ),
        pytest.param(
            {"model": INT4, "comparisons": arms(flag("awq", 40), flag("awq_marlin", 90))},
            "finding",
            id="the fast kernel by name",
        ),
        pytest.param(
            {"model": {"dtype": "fp8"}, "comparisons": arms(flag("fp8", 40), flag(None, 90))},
            "finding",
            id="another method's flag on weights that are small already",
        ),
        pytest.param(
            {"model": INT4, "comparisons": arms(flag("awq", 90), flag(None, 88))},
            "clear",
            id="the flag makes no difference",
        ),
        pytest.param(
            {"model": INT4, "comparisons": arms(flag("awq", 40), flag(None, 90, current=True))},
            "not_enough_evidence",
            id="the flag is gone already",
        ),
        pytest.param(
            {"comparisons": arms(stored("fp16", 90), flag("awq", 70, model={"dtype": "int4"}))},
            "not_enough_evidence",
            id="other weights in the other arm",
        ),
        pytest.param(
            {"comparisons": arms(flag("gptq", 90, model=INT4), flag("awq", 70, model=INT4))},
            "not_enough_evidence",
            id="AWQ and GPTQ are two checkpoints",
        ),
        pytest.param(
            {"model": INT4, "settings": {"quantization_kernel": "gptq"}},
            "finding",
            id="the engine names the slow kernel",
        ),
        pytest.param(
            {"model": INT4, "hardware": {"gpu": "A10"}, "settings": {"quantization": "gptq"}},
            "finding",
            id="the flag on a card that has a faster kernel",
        ),
        pytest.param(
            {"model": INT4, "hardware": {"gpu": "V100"}, "settings": {"quantization": "gptq"}},
            "not_enough_evidence",
            id="a card that has none",
        ),
        pytest.param(
            {"logs": ["Detected that the model can run with gptq_marlin, so forcing gptq."]},
            "finding",
            id="the log says that it was forced",
        ),
        pytest.param(
            {"settings": {"quantization": None, "quantization_kernel": "machete"}},
            "clear",
            id="a fast kernel in use",
        ),
        pytest.param({"model": INT4}, "not_enough_evidence", id="no flag and no kernel known"),
        pytest.param(
            {
                "workload": {"concurrency": 2},
                "comparisons": arms(stored("bf16", 60), stored("int4", 40)),
            },
            "finding",
            id="4 bits slower than 16 where reading weights is the limit",
        ),
    ],
)
def test_kernels(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("QNT001", facts).outcome == outcome


MANY = {"workload": {"concurrency": 256}}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            MANY | {"comparisons": arms(stored("bf16", 3000), stored("int4", 2600))},
            "finding",
            id="slower than 16 bits with many requests",
        ),
        pytest.param(
            MANY | {"comparisons": arms(stored("bf16", 3000), flag("awq_marlin", 3000))},
            "finding",
            id="no faster is enough, and the flag tells the format",
        ),
        pytest.param(
            {
                "workload": {"osl_tokens": 1},
                "comparisons": arms(stored("fp16", 3000), stored("int4", 2600)),
            },
            "finding",
            id="prompts alone",
        ),
        pytest.param(
            MANY | {"comparisons": arms(stored("bf16", 3000), stored("int4", 4000))},
            "clear",
            id="faster, even so",
        ),
        pytest.param(
            {
                "workload": {"concurrency": 4},
                "comparisons": arms(stored("bf16", 300), stored("int4", 200)),
            },
            "clear",
            id="a small batch is bound by memory: a slow arm has a slow kernel",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "A100"},
                "workload": {"concurrency": 256},
                "comparisons": arms(stored("bf16", 3000), stored("fp8", 2600)),
            },
            "finding",
            id="FP8 on a card that multiplies in 16 bits",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "H100"},
                "workload": {"concurrency": 256},
                "comparisons": arms(stored("bf16", 3000), stored("fp8", 2600)),
            },
            "not_enough_evidence",
            id="FP8 on a card that multiplies in it",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "A100"},
                "model": INT4,
                "signals": {"requests_running": 250, "tensor_active_ratio": 0.6},
            },
            "finding",
            id="no second arm, but busy tensor cores beyond the ridge",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "A100"},
                "model": INT4,
                "workload": {"osl_tokens": 200},
                "signals": {"requests_running": 30, "tensor_active_ratio": 0.6},
            },
            "clear",
            id="a batch below the ridge",
        ),
        pytest.param(
            {"model": {"dtype": "bf16"}, "signals": {"requests_running": 500}},
            "clear",
            id="16 bits",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    stored("bf16", 700, workload={"concurrency": 16}),
                    stored("int4", 900, workload={"concurrency": 16}),
                    stored("bf16", 4000, workload={"concurrency": 256}),
                    stored("int4", 2000, workload={"concurrency": 256}),
                )
            },
            "finding",
            id="a sweep of both: arms of one load are compared",
        ),
        pytest.param(
            MANY | {"model": INT4}, "not_enough_evidence", id="many requests prove no loss"
        ),
        pytest.param(
            MANY
            | {
                "comparisons": arms(
                    {"model": {"dtype": "bf16"}, "signals": {"throughput_rel": 1}},
                    {
                        "model": {"dtype": "int4"},
                        "signals": {"throughput_rel": {"min": 0.8, "max": 1.2}},
                    },
                )
            },
            "not_enough_evidence",
            id="a ratio that may be either",
        ),
    ],
)
def test_formats(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("QNT002", facts).outcome == outcome


def test_a_card_with_fp8_is_told_to_use_it() -> None:
    facts = MANY | {
        "hardware": {"gpu": "H100"},
        "comparisons": arms(stored("bf16", 3000), stored("int4", 2600)),
    }
    assert opinion("QNT002", facts).changes == (Change("quantization", "fp8"),)


WALL = {
    "model": {"params_b": 32, "dtype": "bf16"},
    "hardware": {"gpu": "L40S", "count": 2},
    "settings": {"tensor_parallel_size": 2},
}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            WALL
            | {
                "workload": {"slo_itl_s": 0.03},
                "signals": {"dram_active_ratio": 0.8, "itl_mean_s": 0.05},
            },
            "finding",
            id="memory is busy and the target is missed",
        ),
        pytest.param(
            WALL | {"signals": {"itl_mean_s": 0.05, "requests_waiting": 9}},
            "finding",
            id="steps take what reading the weights takes, and requests wait",
        ),
        pytest.param(
            WALL
            | {
                "workload": {"slo_itl_s": 0.1},
                "signals": {"dram_active_ratio": 0.8, "itl_mean_s": 0.05, "requests_waiting": 0},
            },
            "not_enough_evidence",
            id="memory is busy and every target is met",
        ),
        pytest.param(
            WALL
            | {
                "model": {"params_b": 32, "dtype": "fp8"},
                "signals": {"dram_active_ratio": 0.9, "requests_waiting": 9},
            },
            "clear",
            id="small weights already",
        ),
        pytest.param(
            {"model": {"params_b": 32}, "signals": {"dram_active_ratio": 0.9}},
            "not_enough_evidence",
            id="the format is not known",
        ),
        pytest.param(
            {"comparisons": arms(stored("bf16", 900, current=True), stored("fp8", 1500))},
            "finding",
            id="FP8 is measured to be faster",
        ),
    ],
)
def test_the_memory_wall(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("QNT003", facts).outcome == outcome


def test_small_weights_are_advice_until_they_are_measured() -> None:
    advised = opinion("QNT003", WALL | {"signals": {"dram_active_ratio": 0.8}})
    measured = opinion(
        "QNT003", {"comparisons": arms(stored("bf16", 900, current=True), stored("fp8", 1500))}
    )
    assert (advised.severity, measured.severity) == ("info", "warning")
