"""Load on replicas and ranks: even, uneven, lopsided, or not told."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.load_balance import balanced, idle_share, lopsided, uneven


def evidence(**signals: Any) -> Evidence:
    return Evidence(decode_facts({"signals": signals}))


@pytest.mark.parametrize(
    ("signals", "is_uneven", "is_lopsided"),
    [
        pytest.param({"requests_running": [40, 41, 38]}, False, False, id="alike"),
        pytest.param({"requests_running": [400, 290]}, True, False, id="a third more"),
        pytest.param({"requests_running": [9, 6]}, False, False, id="what chance alone gives"),
        pytest.param({"requests_running": [40, 3]}, True, True, id="many times as many"),
        pytest.param(
            {"requests_running": [{"min": 40}, {"max": 10}]}, True, True, id="bounds far apart"
        ),
        pytest.param({"requests_running": [{"min": 4}, {"max": 10}]}, None, None, id="overlap"),
        pytest.param({"requests_running": 40}, None, None, id="one number for all"),
        pytest.param(
            {"requests_running": [60, 61], "requests_waiting": [1, 0]},
            False,
            False,
            id="one that has just come is no queue",
        ),
        pytest.param({"requests_waiting": [30, 0]}, True, True, id="a queue at one only"),
        pytest.param({"requests_waiting": [0, 0]}, False, False, id="no queue anywhere"),
    ],
)
def test_load_is(signals: dict[str, Any], is_uneven: bool | None, is_lopsided: bool | None) -> None:
    seen = evidence(**signals)
    told = {check.truth for check in uneven(seen).parts} - {None}
    assert (True in told) is bool(is_uneven)
    assert lopsided(seen).truth is (True if is_lopsided else None)
    assert balanced(seen).truth is (None if is_uneven is None else not is_uneven)


def test_the_share_that_idles_is_what_the_mean_leaves_of_the_busiest() -> None:
    assert idle_share(evidence(output_tokens_per_s=[1000, 500, 0, 500])) == exactly(0.5)
    bounds = idle_share(evidence(output_tokens_per_s=[1000, {"min": 0, "max": 500}]))
    assert bounds == Interval(0.25, 0.5)
    assert idle_share(evidence(output_tokens_per_s=1000)) is None
