"""Costs that are lost, doubled or misattributed, and metrics that mean something else."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Opinion
from mileage.doctor.rules.device_metrics import RULES as DEVICE
from mileage.doctor.rules.metering import RULES as METERING

PRICE_MAP, NOT_STORED, BASIS, FRACTION, COARSE = (f"COST00{n}" for n in range(1, 6))


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*METERING, *DEVICE) if each.id == rule)
    return check(Evidence(decode_facts(facts)))


@pytest.mark.parametrize(
    ("rule", "facts", "outcome"),
    [
        pytest.param(
            PRICE_MAP,
            {"signals": {"calls_count": 90, "cost_computed_usd": 0}},
            "finding",
            id="calls without a cost",
        ),
        pytest.param(
            PRICE_MAP,
            {
                "settings": {"metering.custom_price_set": True},
                "signals": {"tokens_count": 900, "cost_computed_usd": 0},
            },
            "clear",
            id="a price of 0 that was set on purpose",
        ),
        pytest.param(
            PRICE_MAP,
            {"signals": {"calls_count": 0, "cost_computed_usd": 0}},
            "clear",
            id="no calls, no cost",
        ),
        pytest.param(
            PRICE_MAP,
            {
                "settings": {"metering.provider_prefix": ""},
                "signals": {"tokens_count": {"min": 1}, "cost_recorded_usd": 0},
            },
            "finding",
            id="nothing recorded, and the name has no provider",
        ),
        pytest.param(
            PRICE_MAP,
            {"signals": {"tokens_count": 9000, "cost_recorded_usd": 0}},
            "not_enough_evidence",
            id="nothing recorded: computed as 0, or lost",
        ),
        pytest.param(
            PRICE_MAP,
            {"signals": {"tokens_count": 9000, "cost_computed_usd": 3, "cost_recorded_usd": 0}},
            "clear",
            id="computed and not stored is the other fault",
        ),
        pytest.param(
            PRICE_MAP,
            {"signals": {"tokens_count": 9}, "logs": ["This model isn't mapped yet. model=m"]},
            "finding",
            id="the proxy says so",
        ),
        pytest.param(
            NOT_STORED,
            {"signals": {"cost_computed_usd": {"min": 0.01}, "cost_recorded_usd": 0}},
            "finding",
            id="some cost computed, none stored",
        ),
        pytest.param(
            NOT_STORED,
            {"signals": {"cost_computed_usd": 100, "cost_recorded_usd": 60}},
            "finding",
            id="part of it is lost",
        ),
        pytest.param(
            NOT_STORED,
            {"signals": {"cost_computed_usd": 100, "cost_recorded_usd": 99.5}},
            "clear",
            id="calls in flight at the edges",
        ),
        pytest.param(
            NOT_STORED,
            {"signals": {"cost_computed_usd": 0, "cost_recorded_usd": 0}},
            "clear",
            id="nothing to store",
        ),
        pytest.param(
            NOT_STORED,
            {
                "workload": {"stream": True},
                "signals": {"cost_recorded_usd": 0, "cost_recorded_nonstream_ratio": 1.0},
            },
            "finding",
            id="only streamed calls are missing",
        ),
        pytest.param(
            BASIS,
            {
                "settings": {"metering.cost_basis": "usage"},
                "signals": {"gpu_hours_billed_over_requested_ratio": 1.0},
            },
            "finding",
            id="billed hours are requested hours",
        ),
        pytest.param(
            BASIS,
            {
                "settings": {"metering.cost_basis": "allocation"},
                "signals": {"gpu_hours_billed_over_requested_ratio": 1.0},
            },
            "clear",
            id="the report says that it goes by allocation",
        ),
        pytest.param(
            BASIS,
            {
                "settings": {"metering.cost_basis": "usage"},
                "signals": {"cost_usage_over_allocation_ratio": {"min": 0.3, "max": 1.0}},
            },
            "not_enough_evidence",
            id="a bound that allows both",
        ),
        pytest.param(
            FRACTION,
            {
                "settings": {"k8s.gpu_sharing": "hami", "vgpu.core_limit_ratio": 0.3},
                "signals": {"gpu_share_billed_ratio": 1.0},
            },
            "finding",
            id="billed whole, limited to a third",
        ),
        pytest.param(
            FRACTION,
            {
                "settings": {"k8s.gpu_replicas_label": 4},
                "signals": {"gpu_share_billed_ratio": 0.25},
            },
            "clear",
            id="billed by the copies",
        ),
        pytest.param(
            FRACTION,
            {"signals": {"gpu_share_billed_ratio": 1.0, "gpu_share_requested_ratio": 1.0}},
            "clear",
            id="a whole card that was asked for",
        ),
        pytest.param(
            FRACTION,
            {
                "hardware": {"mig_profile": "2g.20gb"},
                "signals": {"gpu_share_billed_ratio": 1.0},
            },
            "finding",
            id="a MIG slice billed as the card",
        ),
        pytest.param(
            FRACTION,
            {"signals": {"gpu_cost_over_instance_price_ratio": 0.9}},
            "not_enough_evidence",
            id="most of a machine's price is its GPU",
        ),
        pytest.param(
            COARSE,
            {
                "settings": {"metering.cost_basis": "allocation", "k8s.gpu_sharing": "mps"},
                "signals": {"cost_usage_over_allocation_ratio": 0.97},
            },
            "clear",
            id="usage is what is allocated",
        ),
    ],
)
def test_costs(rule: str, facts: dict[str, Any], outcome: str) -> None:
    found = opinion(rule, facts).outcome
    assert found == outcome


@pytest.mark.parametrize(
    ("rule", "facts", "outcome"),
    [
        pytest.param(
            "ATTR001",
            {
                "settings": {"k8s.gpu_sharing": "mps"},
                "signals": {"gpu_util_equal_across_pods": True},
            },
            "finding",
            id="MPS pods report the device",
        ),
        pytest.param(
            "ATTR001",
            {
                "settings": {"k8s.gpu_sharing": "time_slicing"},
                "signals": {"power_w": [54.1, 54.1, 54.1]},
            },
            "finding",
            id="three pods of one card draw the same power",
        ),
        pytest.param(
            "ATTR001",
            {
                "settings": {"k8s.gpu_sharing": "time_slicing"},
                "hardware": {"count": 3},
                "signals": {"power_w": [54.1, 54.1, 54.1]},
            },
            "not_enough_evidence",
            id="three cards may draw the same",
        ),
        pytest.param(
            "ATTR001",
            {
                "hardware": {"mig_profile": "1g.10gb"},
                "signals": {"gpu_util_equal_across_pods": True},
            },
            "clear",
            id="MIG slices are devices of their own",
        ),
        pytest.param(
            "METR001",
            {"settings": {"k8s.gpu_sharing": "mig"}, "signals": {"gpu_util_ratio": [0, 0]}},
            "finding",
            id="0 on both slices",
        ),
        pytest.param(
            "METR001",
            {
                "workload": {"kind": "none"},
                "hardware": {"gpu": "T4"},
                "signals": {"gpu_util_ratio": 0, "requests_running": 0},
            },
            "not_enough_evidence",
            id="an idle card reads 0 rightly",
        ),
        pytest.param(
            "METR001",
            {
                "hardware": {"mig_profile": "2g.20gb"},
                "signals": {"gpu_util_ratio": 0, "gr_engine_active_ratio": 0.7},
            },
            "clear",
            id="the metric that works on MIG is read beside it",
        ),
        pytest.param(
            "METR001",
            {
                "hardware": {"gpu": "A10"},
                "signals": {"gpu_util_ratio": 0, "output_tokens_per_s": 300},
            },
            "finding",
            id="tokens come out of a card that reads 0",
        ),
        pytest.param(
            "METR001",
            {
                "engine": {"name": "llama.cpp"},
                "signals": {"gpu_util_ratio": 0, "output_tokens_per_s": 9},
            },
            "not_enough_evidence",
            id="llama.cpp may compute on the CPU beside an idle card",
        ),
        pytest.param(
            "METR001",
            {"signals": {"gpu_util_ratio": 0.9, "sm_active_ratio": 0, "requests_running": 4}},
            "finding",
            id="profiling metrics are 0 on a busy card",
        ),
        pytest.param(
            "SPIN001",
            {
                "signals": {
                    "requests_running": 0,
                    "requests_waiting": 0,
                    "engine_process_cpu_ratio": 1.0,
                }
            },
            "finding",
            id="an engine core spins",
        ),
        pytest.param(
            "SPIN001",
            {
                "signals": {
                    "requests_running": 0,
                    "requests_waiting": 0,
                    "gpu_util_ratio": 1.0,
                    "output_tokens_per_s": 700,
                }
            },
            "clear",
            id="tokens come out: the count of requests is late",
        ),
        pytest.param(
            "SPIN001",
            {
                "workload": {"kind": "none"},
                "signals": {
                    "gpu_util_ratio": [1.0, 1.0],
                    "power_w": [95, 96],
                    "power_limit_w": 700,
                },
            },
            "finding",
            id="no traffic is expected, and the power is that of a card at rest",
        ),
        pytest.param(
            "SPIN001",
            {
                "settings": {"k8s.pods_on_gpu": 3},
                "signals": {
                    "requests_running": 0,
                    "requests_waiting": 0,
                    "gpu_util_ratio": 1.0,
                    "power_w": 600,
                    "power_limit_w": 700,
                },
            },
            "not_enough_evidence",
            id="a neighbour on the same card works",
        ),
        pytest.param(
            "SPIN001",
            {
                "signals": {
                    "requests_running": 0,
                    "requests_waiting": 6,
                    "gpu_util_ratio": 1.0,
                }
            },
            "clear",
            id="requests wait: it is stuck, not idle",
        ),
    ],
)
def test_metrics_that_mean_something_else(rule: str, facts: dict[str, Any], outcome: str) -> None:
    assert opinion(rule, facts).outcome == outcome
