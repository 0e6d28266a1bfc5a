"""Adapters: slots, ranks, the path itself; and fleets of fine-tunes."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.lora import RULES as LORA
from mileage.doctor.rules.tenants import RULES as TENANTS


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*LORA, *TENANTS) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


def adapters(count: int, **signals: Any) -> dict[str, Any]:
    return {"workload": {"lora_adapters": count}, "signals": signals}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"settings": {"max_loras": 4}, **adapters(20, lora_loads_per_s=2)},
            "finding",
            id="more adapters than slots, and loads all the time",
        ),
        pytest.param(
            {"settings": {"max_loras": 4}, **adapters(20)},
            "finding",
            id="more adapters than slots",
        ),
        pytest.param(
            {"settings": {"max_loras": 4}, **adapters(20, lora_loads_per_s=0)},
            "not_enough_evidence",
            id="more adapters than slots, but none is loaded",
        ),
        pytest.param(
            {"settings": {"max_loras": 8}, **adapters(8, lora_loads_per_s=0.5)},
            "clear",
            id="a slot for each: loads are those of the start",
        ),
        pytest.param(
            {
                "engine": {"name": "vllm"},
                "settings": {"max_loras": None},
                **adapters(3, lora_loads_per_s=1),
            },
            "finding",
            id="vLLM's default is one slot",
        ),
        pytest.param(
            {
                "engine": {"name": "sglang"},
                "settings": {"max_loras": None},
                **adapters(3, lora_loads_per_s=1),
            },
            "clear",
            id="SGLang's default is eight",
        ),
        pytest.param(
            {
                "settings": {"max_loras": 4},
                "comparisons": arms(adapters(4, ttft_mean_s=0.1), adapters(12, ttft_mean_s=2.0)),
            },
            "finding",
            id="the first token is late beyond the slots",
        ),
        pytest.param(
            {
                "settings": {"max_loras": 16},
                "comparisons": arms(adapters(4, ttft_mean_s=0.1), adapters(12, ttft_mean_s=2.0)),
            },
            "not_enough_evidence",
            id="late within the slots: something else",
        ),
        pytest.param(
            {
                "workload": {"lora_adapters": 16},
                "comparisons": arms(
                    {"settings": {"max_loras": 4}, "signals": {"itl_mean_s": 0.09}},
                    {"settings": {"max_loras": 16}, "signals": {"itl_mean_s": 0.03}},
                ),
            },
            "finding",
            id="more slots settle it",
        ),
        pytest.param(
            {"signals": {"lora_loads_per_s": 2, "lora_load_s": 0.4}},
            "finding",
            id="loads all the time, with unknown slots",
        ),
        pytest.param(
            {"settings": {"max_loras": 4}, "workload": {"lora_adapters": {"min": 2}}},
            "not_enough_evidence",
            id="a bound on both sides of the slots",
        ),
        pytest.param(
            {"comparisons": arms(adapters(8, ttft_mean_s=0.1), adapters(16, ttft_mean_s=2.0))},
            "finding",
            id="slots not known, and twice the adapters are twenty times as late",
        ),
        pytest.param(
            {"comparisons": arms(adapters(8, ttft_mean_s=0.1), adapters(16, ttft_mean_s=0.2))},
            "not_enough_evidence",
            id="slots not known, and a little later",
        ),
    ],
)
def test_slots(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("LORA001", facts).outcome == outcome


def test_loads_one_after_another_bound_the_waste() -> None:
    facts = {
        "settings": {"max_loras": 4},
        **adapters(20, lora_loads_per_s=2, lora_load_s=0.3),
    }
    found = opinion("LORA001", facts)
    assert found.waste_ratio is not None
    assert found.waste_ratio.high == pytest.approx(0.6)
    assert Change("max_loras", 20) in found.changes


def ranks(limit: float, *used: float) -> dict[str, Any]:
    return {"settings": {"max_lora_rank": limit}, "workload": {"lora_ranks": list(used)}}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(ranks(64, 8, 16), "finding", id="four times the greatest rank"),
        pytest.param(ranks(32, 16), "finding", id="twice the greatest rank"),
        pytest.param(ranks(64, 8, 64), "clear", id="one adapter needs it"),
        pytest.param(ranks(16, 8), "clear", id="the default costs little"),
        pytest.param(
            {"settings": {"max_lora_rank": 256}}, "not_enough_evidence", id="ranks not known"
        ),
        pytest.param(
            {
                "settings": {"max_lora_rank": {"min": 16}},
                "workload": {"lora_ranks": [16]},
            },
            "not_enough_evidence",
            id="a bound that may be enough",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {
                        "settings": {"max_lora_rank": 128},
                        "signals": {"throughput_rel": 1},
                        "current": True,
                    },
                    {"settings": {"max_lora_rank": 16}, "signals": {"throughput_rel": 1.3}},
                )
            },
            "finding",
            id="faster with a smaller one",
        ),
        pytest.param(
            {
                "comparisons": arms(
                    {"settings": {"max_lora_rank": 128}, "signals": {"kv_capacity_rel": 1}},
                    {"settings": {"max_lora_rank": 16}, "signals": {"kv_capacity_rel": 1.5}},
                )
            },
            "finding",
            id="more room for the cache with a smaller one",
        ),
    ],
)
def test_ranks(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("LORA002", facts).outcome == outcome


def lora(on: bool, rate: float, used: int = 1) -> dict[str, Any]:
    arm = adapters(used if on else 0, output_tokens_per_s=rate)
    return arm | {"settings": {"enable_lora": on}}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"comparisons": arms(lora(False, 1000), lora(True, 600))},
            "finding",
            id="one adapter takes two fifths",
        ),
        pytest.param(
            {"comparisons": arms(lora(True, 600), lora(False, 1000))},
            "finding",
            id="the same in the other order",
        ),
        pytest.param(
            {"comparisons": arms(lora(False, 1000), lora(True, 970))},
            "clear",
            id="three per cent are its price",
        ),
        pytest.param(
            {
                "settings": {"max_loras": 2},
                "comparisons": arms(lora(False, 1000), lora(True, 300, used=9)),
            },
            "clear",
            id="more adapters than slots are another matter",
        ),
        pytest.param(
            {
                "settings": {"enable_lora": True},
                "comparisons": arms(adapters(0, itl_mean_s=0.01), adapters(1, itl_mean_s=0.02)),
            },
            "finding",
            id="requests for the base model against those for an adapter",
        ),
        pytest.param(
            {
                "workload": {"lora_adapters": 0},
                "comparisons": arms(
                    {"settings": {"enable_lora": False}, "signals": {"output_tokens_per_s": 27}},
                    {"settings": {"enable_lora": True}, "signals": {"output_tokens_per_s": 9}},
                ),
            },
            "finding",
            id="the path is on, and no adapter is asked for",
        ),
        pytest.param(
            {"settings": {"enable_lora": True}, **adapters(1, itl_mean_s=0.2)},
            "not_enough_evidence",
            id="no run without LoRA",
        ),
    ],
)
def test_the_path(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("LORA003", facts).outcome == outcome


def models(used: list[float | None], names: tuple[str, ...], key: str) -> list[dict[str, Any]]:
    return arms(
        *(
            {"model": {"name": name}, "signals": {} if value is None else {key: value}}
            for name, value in zip(names, used, strict=True)
        )
    )


TUNED = ("base-8b-hr", "base-8b-law", "base-8b-it")
OTHERS = ("alpha-8b", "beta-8b", "gamma-8b")


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(models([0.1, 0.2, 0.1], TUNED, "gpu_util_ratio"), "finding", id="all idle"),
        pytest.param(models([0.1, 0.9, 0.1], TUNED, "gpu_util_ratio"), "clear", id="one is busy"),
        pytest.param(
            models([0.1, None, 0.1], TUNED, "gpu_util_ratio"),
            "not_enough_evidence",
            id="one is not known",
        ),
        pytest.param(
            models([0.1, 0.2, 0.1], OTHERS, "gpu_util_ratio"),
            "not_enough_evidence",
            id="models that have no base in common",
        ),
    ],
)
def test_fine_tunes(facts: list[dict[str, Any]], outcome: str) -> None:
    document = {"model": {"params_b": 8}, "comparisons": facts}
    assert opinion("TEN001", document).outcome == outcome


@pytest.mark.parametrize(
    ("used", "minimum", "outcome"),
    [
        pytest.param([8, 0, 0], 1, "finding", id="most are unused and all are kept"),
        pytest.param([8, 6, 0], 1, "clear", id="most are in use"),
        pytest.param([8, 0, 0], 0, "clear", id="unused ones may go"),
        pytest.param([0, 0, 0], 1, "clear", id="no traffic at all is idle capacity"),
    ],
)
def test_unused_models(used: list[float | None], minimum: int, outcome: str) -> None:
    document = {
        "settings": {"hpa.min_replicas": minimum},
        "signals": {"process_uptime_s": 7200},
        "comparisons": models(used, OTHERS, "requests_running"),
    }
    assert opinion("TEN002", document).outcome == outcome
