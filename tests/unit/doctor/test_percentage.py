"""Facts in other units than the vocabulary's."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.doctor.document import diagnose_document
from mileage.doctor.facts import decode_facts
from mileage.doctor.quantity import Quantity
from tests.support.doctor_answers import loud_causes

BUSY = {"requests_running": 40, "requests_waiting": 0, "ttft_p50_s": 0.2}


def number(document: dict[str, Any], key: str) -> Quantity:
    value = decode_facts(document).values[key]
    assert isinstance(value, Quantity)
    return value


def test_a_share_above_one_is_a_percentage() -> None:
    known = number({"signals": {"kv_cache_usage_ratio": 45}}, "kv_cache_usage_ratio")
    assert known.value.plain() == pytest.approx(0.45)


def test_all_units_of_one_fact_are_percentages_where_one_is() -> None:
    known = number({"signals": {"gpu_util_ratio": [97, 1]}}, "gpu_util_ratio")
    assert [part.low for part in known.parts] == pytest.approx([0.97, 0.01])


def test_a_bound_may_be_a_percentage() -> None:
    known = number({"signals": {"gpu_util_ratio": {"max": 40}}}, "gpu_util_ratio")
    assert known.value.high == pytest.approx(0.4)


def test_a_ratio_of_two_costs_may_be_above_one() -> None:
    key = "gpu_cost_over_instance_price_ratio"
    assert number({"signals": {key: 4}}, key).value.plain() == 4


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("signals", "kv_cache_usage_ratio", 4500),
        ("signals", "requests_running", -4),
        ("signals", "itl_mean_s", -0.1),
        ("workload", "concurrency", -1),
    ],
)
def test_what_cannot_be_is_an_error_that_names_it(section: str, name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{section}.{name}"):
        decode_facts({section: {name: value}})


@pytest.mark.parametrize(
    ("section", "name"),
    [("settings", "max_num_seqs"), ("signals", "host_rss_growth_gb_per_h")],
)
def test_what_may_be_below_zero_is_none(section: str, name: str) -> None:
    assert decode_facts({section: {name: -1}}).values


@pytest.mark.parametrize("used", [0.38, 38])
def test_the_answer_is_the_same_in_percent(used: float) -> None:
    facts = {
        "settings": {"max_num_seqs": 40},
        "signals": BUSY | {"requests_waiting": 200, "kv_cache_usage_ratio": used},
    }
    assert loud_causes(facts) == ["max_num_seqs_cap"]


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        pytest.param({"signals": BUSY | {"itl_mean_s": 0.03}}, "clear", id="tokens in time"),
        pytest.param(
            {"signals": BUSY | {"itl_mean_s": 35}}, "not_enough_evidence", id="a token in 35 s"
        ),
        pytest.param(
            {"signals": BUSY, "workload": {"slo_ttft_s": 0.1}},
            "not_enough_evidence",
            id="a target that half of the requests miss",
        ),
    ],
)
def test_what_ails_is_never_clear(facts: dict[str, Any], verdict: str) -> None:
    assert diagnose_document(facts).verdict == verdict
