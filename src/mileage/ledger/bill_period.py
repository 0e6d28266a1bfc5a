"""BillPeriod: cells of one period, summed by replica and account."""

from __future__ import annotations

from collections.abc import Mapping

from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill_cells import Cell
from mileage.ledger.bill_sums import Amount, UseSums
from mileage.ledger.spread import spread_by_use

__all__ = ["BillPeriod"]


class BillPeriod:
    """Sums of one period: of accounts, and by replica of what nobody used."""

    def __init__(self) -> None:
        self.accounts: dict[str, UseSums] = {}
        self.idle: dict[str, Amount] = {}
        self.warmup: dict[str, Amount] = {}
        self.unattributed: dict[str, Amount] = {}
        self.totals: dict[str, Amount] = {}
        self.last: dict[str, Cell] = {}
        self._use_ns: dict[str, dict[str, int]] = {}
        self._models: dict[str, set[str]] = {}

    def add(self, cell: Cell, names: AccountNames) -> None:
        """Add a replica's hour."""
        replica, accounts = cell.replica, self.accounts
        use_ns = self._use_ns.setdefault(replica, {})
        models = self._models.setdefault(replica, set())
        total = self.totals.setdefault(replica, Amount())
        for row, nano_usd in zip(cell.rows, cell.nano_usd[:-3], strict=True):
            name = names.of(row)
            sums = accounts.get(name)
            if sums is None:
                sums = accounts[name] = UseSums()
            sums.add_row(row, nano_usd)
            total.add(row.gpu_ns, nano_usd)
            use_ns[name] = use_ns.get(name, 0) + row.gpu_ns
            models.add(row.model)
        self.last[replica] = cell
        idle, warmup, unattributed = cell.nano_usd[-3:]
        for amounts, gpu_ns, nano_usd in (
            (self.idle, cell.idle_ns, idle),
            (self.warmup, cell.warmup_ns, warmup),
            (self.unattributed, cell.unattributed_ns, unattributed),
        ):
            amounts.setdefault(replica, Amount()).add(gpu_ns, nano_usd)
            total.add(gpu_ns, nano_usd)

    def by_use(self, waste: Mapping[str, Amount]) -> tuple[dict[str, Amount], dict[str, Amount]]:
        """What each account pays of idle or warm-up time, and what is left, by replica."""
        return spread_by_use(waste, self._use_ns, self._models)
