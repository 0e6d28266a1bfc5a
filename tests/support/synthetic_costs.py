"""Costs without a ledger: seeded hours of a small fleet, as a view of them is made."""

from __future__ import annotations

import datetime as dt
import math
from random import Random

from mileage.core.errors import ConfigError
from mileage.gateway.admin.cost_metrics import CostFigures
from mileage.ledger.account_name import AccountNames
from mileage.ledger.billing_config import BillingConfig
from mileage.ledger.cost_counters import CostCounters
from mileage.ledger.cost_view import CostView, make_cost_view
from mileage.ledger.hourly_cost import hourly_costs
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["SyntheticCosts"]

HOUR_S = 3600
HOUR_NS = HOUR_S * 10**9
WINDOWS = {"24h": 24, "7d": 168, "30d": 720, "this-month": 400}


class SyntheticCosts:
    """Satisfies CostSource. Three tenants on two replicas by day and night; without `priced` no
    GPU has a price, and without `hours` there is nothing on record."""

    def __init__(
        self,
        *,
        now_utc_s: int = 1_800_057_600 + 13 * HOUR_S,
        tenants: tuple[str, ...] = ("search", "support", "batch"),
        priced: bool = True,
        hours: bool = True,
    ) -> None:
        self.now_utc_s = now_utc_s
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self._tenants, self._priced, self._hours = tenants, priced, hours

    def read(self, window: str, by: str) -> CostView:
        """The costs of the window."""
        self.asked.append((window, by))
        if self.error is not None:
            raise self.error
        if window not in WINDOWS:
            raise ConfigError("window", window, "24h, 30d, this-month and so on")
        names = AccountNames(by, dt.UTC, key="by")
        since_s = self.now_utc_s - WINDOWS[window] * HOUR_S
        usage, capacity = self._rows(since_s)
        return make_cost_view(
            usage,
            capacity,
            names,
            book=self._book(),
            since_utc_s=since_s,
            until_utc_s=self.now_utc_s,
            settled_utc_s=self.now_utc_s - 90 if self._hours else None,
        )

    def figures(self) -> CostFigures:
        """Totals since two hours ago."""
        if self.error is not None:
            raise self.error
        rows = self._rows(self.now_utc_s - 2 * HOUR_S)
        used, there = CostCounters(0).take(*rows, None)
        hour = self._rows(self.now_utc_s - HOUR_S)
        names = AccountNames("model", dt.UTC)
        return CostFigures(
            used=used,
            there=there,
            hour=hourly_costs(*hour, names, book=self._book()),
            settled_utc_s=self.now_utc_s - 90,
        )

    def _book(self) -> PriceBook:
        config = BillingConfig(public_prices=False)
        return PriceBook(config, dt.UTC, usd_per_gpu_hour=2.49 if self._priced else None)

    def _rows(self, since_s: int) -> tuple[list[UsageRow], list[CapacityRow]]:
        usage: list[UsageRow] = []
        capacity: list[CapacityRow] = []
        first = since_s // HOUR_S * HOUR_S
        for hour_s in range(first, self.now_utc_s, HOUR_S) if self._hours else ():
            for replica, gpus in (("h100-a:8000", 2.0), ("h100-b:8000", 2.0)):
                rows, there = self._hour(hour_s, replica, gpus)
                usage += rows
                capacity.append(there)
        return usage, capacity

    def _hour(self, hour_s: int, replica: str, gpus: float) -> tuple[list[UsageRow], CapacityRow]:
        random = Random(f"{hour_s} {replica}")
        capacity_ns = int(gpus * HOUR_NS)
        day = 0.5 - 0.45 * math.cos(hour_s / HOUR_S % 24 / 24 * 2 * math.pi)
        rows = []
        for place, tenant in enumerate(self._tenants):
            share = (0.05 + day) * (0.45, 0.25, 0.12)[place % 3] * random.uniform(0.8, 1.1)
            gpu_ns = int(capacity_ns * share * (3 / max(3, len(self._tenants))))
            prefill_ns = int(gpu_ns * (0.55, 0.25, 0.4)[place % 3])
            requests = gpu_ns // 900_000_000 + 1
            failed = random.random() < 0.1
            rows.append(
                UsageRow(
                    hour_at_utc_s=hour_s,
                    replica=replica,
                    tenant=tenant,
                    model=("qwen3-32b", "qwen3-32b", "sql-adapter")[place % 3],
                    adapter=("", "", "sql-adapter")[place % 3],
                    key=("web", "", "nightly")[place % 3],
                    labels=("env=prod,team=ranking", "env=prod", "")[place % 3],
                    requests=requests,
                    requests_failed=requests // 20 if failed else 0,
                    prompt_tokens=requests * 1200,
                    cached_tokens=requests * (700, 200, 20)[place % 3],
                    output_tokens=requests * (60, 300, 180)[place % 3],
                    gpu_ns=gpu_ns,
                    prefill_ns=prefill_ns,
                    recomputed_ns=prefill_ns // 12 if day > 0.8 else 0,
                    failed_ns=gpu_ns // 25 if failed else 0,
                    low_ns=int(gpu_ns * 0.94),
                    high_ns=int(gpu_ns * 1.07),
                )
            )
        warmup_ns = capacity_ns // 15 if hour_s // HOUR_S % 24 == 7 else 0
        used_ns = sum(row.gpu_ns for row in rows)
        idle_ns = capacity_ns - used_ns - warmup_ns
        return rows, CapacityRow(
            hour_at_utc_s=hour_s,
            replica=replica,
            gpu="H100-SXM5-80GB",
            gpus=gpus,
            capacity_ns=capacity_ns,
            idle_ns=idle_ns,
            warmup_ns=warmup_ns,
        )
