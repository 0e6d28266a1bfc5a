"""Rows of usage and capacity, drawn or written short, for tests of the bill."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["HOUR_NS", "START_S", "capacity_of", "ledgers", "usage"]

START_S = 1_793_491_200
"""2026-11-01 00:00 UTC."""
HOUR_NS = 3_600_000_000_000

_GPUS = ("", "L40S", "H100-SXM5-80GB", "H20-96GB", "cpu")


def usage(hour: int = 0, tenant: str = "a", replica: str = "r0", **sums: Any) -> UsageRow:
    """A row in the hour so many after the start of November."""
    texts = {"model": "m", **sums}
    return UsageRow(hour_at_utc_s=START_S + 3600 * hour, replica=replica, tenant=tenant, **texts)


def capacity_of(
    rows: list[UsageRow], *, idle_ns: int = 0, warmup_ns: int = 0, **fields: Any
) -> CapacityRow:
    """What there was in the hour of the rows, all of one replica, with idle and warm-up time."""
    return CapacityRow(
        hour_at_utc_s=rows[0].hour_at_utc_s,
        replica=rows[0].replica,
        capacity_ns=sum(row.gpu_ns for row in rows) + idle_ns + warmup_ns,
        idle_ns=idle_ns,
        warmup_ns=warmup_ns,
        **fields,
    )


@st.composite
def _rows(draw: DrawFn) -> UsageRow:
    gpu_ns = draw(st.integers(0, 3 * HOUR_NS) | st.integers(0, 5))
    prefill_ns = draw(st.integers(0, gpu_ns))
    prompt_tokens = draw(st.integers(0, 10**7))
    return UsageRow(
        hour_at_utc_s=START_S + 3600 * draw(st.integers(0, 60)),
        replica=draw(st.sampled_from(("r0", "r1", "r2"))),
        tenant=draw(st.sampled_from(("a", "b", "(idle)", "(warm-up)", ""))),
        model=draw(st.sampled_from(("m", "n"))),
        adapter=draw(st.sampled_from(("", "x"))),
        key=draw(st.sampled_from(("", "ci"))),
        labels=draw(st.sampled_from(("", "app=web", "app=job,env=prod"))),
        requests=draw(st.integers(0, 1000)),
        prompt_tokens=prompt_tokens,
        cached_tokens=draw(st.integers(0, prompt_tokens)),
        output_tokens=draw(st.integers(0, 10**7)),
        gpu_ns=gpu_ns,
        prefill_ns=prefill_ns,
        recomputed_ns=draw(st.integers(0, prefill_ns)),
        failed_ns=draw(st.integers(0, gpu_ns)),
        low_ns=gpu_ns // 2,
        high_ns=gpu_ns * 2,
    )


@st.composite
def ledgers(draw: DrawFn) -> tuple[list[UsageRow], list[CapacityRow]]:
    """Rows in any order, with the capacity of each replica's hour; also hours without use."""
    rows = draw(st.lists(_rows(), max_size=12))
    used: dict[tuple[int, str], int] = {}
    for row in rows:
        key = (row.hour_at_utc_s, row.replica)
        used[key] = used.get(key, 0) + row.gpu_ns
    for hour in draw(st.lists(st.integers(0, 60), max_size=3)):
        used.setdefault((START_S + 3600 * hour, "r1"), 0)
    capacity = []
    for (hour_at_utc_s, replica), gpu_ns in used.items():
        idle_ns, warmup_ns = draw(st.integers(0, HOUR_NS)), draw(st.integers(0, HOUR_NS))
        capacity.append(
            CapacityRow(
                hour_at_utc_s=hour_at_utc_s,
                replica=replica,
                gpu=draw(st.sampled_from(_GPUS)),
                gpus=draw(st.sampled_from((0.5, 1.0, 3.0, 8.0))),
                capacity_ns=gpu_ns + idle_ns + warmup_ns,
                idle_ns=idle_ns,
                warmup_ns=warmup_ns,
            )
        )
    return rows, capacity
