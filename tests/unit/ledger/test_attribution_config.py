"""AttributionConfig refuses what cannot be, and names the key."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.ledger.attribution_config import AttributionConfig


@pytest.mark.parametrize(
    ("values", "key"),
    [
        pytest.param({"window_s": 7}, "window_s", id="an hour is no whole number of 7 s"),
        pytest.param({"window_s": 0}, "window_s", id="no window at all"),
        pytest.param({"compute_ratio": 0.8}, "compute_ratio", id="ratios that sum to 1.1"),
        pytest.param(
            {"compute_ratio": 1.2, "memory_ratio": -0.2}, "compute_ratio", id="a ratio above 1"
        ),
        pytest.param({"decode_cost_tokens": 0.0}, "decode_cost_tokens", id="answers for nothing"),
        pytest.param({"token_events_max": -1}, "token_events_max", id="fewer than no events"),
        pytest.param({"wait_max_s": -1.0}, "wait_max_s", id="a wait into the past"),
        pytest.param({"weighed_by": "taste"}, "weighed_by", id="an unknown way"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AttributionConfig(**values)
    assert caught.value.key == f"attribution.{key}"


def test_other_ratios_that_sum_to_1_are_fine() -> None:
    config = AttributionConfig(compute_ratio=0.5, memory_ratio=0.4, interconnect_ratio=0.1)
    assert config.interconnect_ratio == 0.1
