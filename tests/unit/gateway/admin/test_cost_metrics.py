"""Metrics of costs: what is settled, in seconds and USD; what is not known is absent."""

from __future__ import annotations

import re

from mileage.core.errors import LedgerError
from tests.support.admin_plane import AdminPlane
from tests.support.synthetic_costs import SyntheticCosts


def scraped(plane: AdminPlane) -> dict[str, float]:
    text = plane.call("/metrics").body.decode()
    pairs = re.findall(r"^((?:mileage|llm)_\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in pairs}


def test_shares_and_idle_time_sum_to_the_capacity() -> None:
    found = scraped(AdminPlane(costs=SyntheticCosts()))

    def total(name: str) -> float:
        return sum(value for key, value in found.items() if key.startswith(name))

    capacity = total("mileage_capacity_gpu_seconds_total")
    assert capacity == 2 * 4 * 3600
    used = total("mileage_attributed_gpu_seconds_total")
    idle = total("mileage_idle_gpu_seconds_total")
    warmup = total('mileage_capacity_gpu_seconds_total{replica="h100-a:8000",state="warmup"}')
    assert used + idle + 2 * warmup == capacity
    name = 'mileage_attributed_gpu_seconds_total{model="qwen3-32b",phase="decode",tenant="search"}'
    assert found[name] > 0
    assert total("llm_total_hourly_cost") == 4 * 2.49
    assert found['llm_cost_per_million_tokens{model="qwen3-32b"}'] > 0
    assert total("mileage_costs_settled_timestamp_seconds") > 1.7e9


def test_without_a_price_there_is_no_money() -> None:
    found = scraped(AdminPlane(costs=SyntheticCosts(priced=False)))
    assert not any(name.startswith("llm_") for name in found)
    assert any(name.startswith("mileage_attributed") for name in found)


def test_a_ledger_that_cannot_be_read_takes_no_other_metric_along() -> None:
    costs = SyntheticCosts()
    costs.error = LedgerError("/ledger", "is locked")
    found = scraped(AdminPlane(costs=costs))
    assert "mileage_uptime_seconds" in found
    assert not any("gpu_seconds" in name and "attributed" in name for name in found)
