"""CostCounters: totals that only grow, whatever is read when."""

from __future__ import annotations

from typing import Any

from mileage.ledger.cost_counters import SERIES_MAX, CostCounters
from mileage.ledger.usage_row import CapacityRow, UsageRow

HOUR_S = 3600


def usage(hour: int, gpu_ns: int, tenant: str = "t", **fields: Any) -> UsageRow:
    return UsageRow(
        hour_at_utc_s=hour * HOUR_S, replica="a", tenant=tenant, model="m", gpu_ns=gpu_ns, **fields
    )


def capacity(hour: int, capacity_ns: int, idle_ns: int, warmup_ns: int = 0) -> CapacityRow:
    return CapacityRow(
        hour_at_utc_s=hour * HOUR_S,
        replica="a",
        capacity_ns=capacity_ns,
        idle_ns=idle_ns,
        warmup_ns=warmup_ns,
    )


def test_gpu_time_is_told_by_what_it_was_for() -> None:
    used, there = CostCounters(0).take(
        [usage(0, 100, prefill_ns=40, recomputed_ns=10), usage(0, 50, failed_ns=50)],
        [capacity(0, 300, 100, 50)],
        None,
    )
    assert used == {
        ("t", "m", "prefill"): 30,
        ("t", "m", "decode"): 60,
        ("t", "m", "recomputed"): 10,
        ("t", "m", "failed"): 50,
    }
    assert there == {("a", "up"): 250, ("a", "idle"): 100, ("a", "warmup"): 50}


def test_an_hour_that_is_settled_is_added_once_and_never_read_again() -> None:
    counters = CostCounters(5 * HOUR_S)
    key = ("t", "m", "decode")
    assert counters.take([usage(5, 10)], [], 5.5 * HOUR_S)[0][key] == 10
    assert counters.open_hour_utc_s == 5 * HOUR_S
    assert counters.take([usage(5, 30), usage(6, 5)], [], 6.2 * HOUR_S)[0][key] == 35
    assert counters.open_hour_utc_s == 6 * HOUR_S
    # From now on only rows since then are given.
    assert counters.take([usage(6, 7)], [], 6.4 * HOUR_S)[0][key] == 37
    assert counters.take([usage(6, 7)], [], None)[0][key] == 37
    assert counters.take([usage(6, 7)], [], 3.0 * HOUR_S)[0][key] == 37
    assert counters.open_hour_utc_s == 6 * HOUR_S


def test_pairs_of_tenant_and_model_are_bounded() -> None:
    counters = CostCounters(0)
    used, _ = counters.take([usage(0, 1, str(n)) for n in range(SERIES_MAX + 7)], [], None)
    assert len({key[:2] for key in used}) == SERIES_MAX + 1
    assert used["other", "other", "decode"] == 7
    used, _ = counters.take([usage(0, 1, "0"), usage(0, 1, "new")], [], None)
    assert used == {
        (*pair, kind): int(kind == "decode")
        for pair in (("0", "m"), ("other", "other"))
        for kind in ("prefill", "decode", "recomputed", "failed")
    }


def test_requests_without_gpu_time_make_no_series() -> None:
    assert CostCounters(0).take([usage(0, 0, "refused")], [], None)[0] == {}
