"""Reserved: hours that tenants had reserved, and what they pay of the time that nobody used."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill_cells import Cell
from mileage.ledger.bill_sums import Amount
from mileage.ledger.billing_config import ReservationConfig
from mileage.ledger.calendar import HOUR_S, local_time
from mileage.ledger.spread import spread_by_reservation

__all__ = ["Reserved"]

_NS: Final = 1_000_000_000


class _Hour:
    """What tenants used in an hour, and what was idle or warming up of each replica."""

    __slots__ = ("idle", "used_ns", "warmup")

    def __init__(self) -> None:
        self.used_ns: dict[str, int] = {}
        self.idle: list[Amount] = []
        self.warmup: list[Amount] = []


class Reserved:
    """Collects hours; each is charged by itself, as a reservation that was not used is lost."""

    def __init__(
        self, reservations: Iterable[ReservationConfig], zone: dt.tzinfo, until_utc_s: int | None
    ) -> None:
        self._reservations = tuple(reservations)
        self._zone, self._until_utc_s = zone, until_utc_s
        self._hours: dict[int, _Hour] = {}

    def add(self, cell: Cell) -> None:
        """Add a replica's hour."""
        hour = self._hours.setdefault(cell.hour_at_utc_s, _Hour())
        for row in cell.rows:
            hour.used_ns[row.tenant] = hour.used_ns.get(row.tenant, 0) + row.gpu_ns
        for parts, gpu_ns, nano_usd in (
            (hour.idle, cell.idle_ns, cell.nano_usd[-3]),
            (hour.warmup, cell.warmup_ns, cell.nano_usd[-2]),
        ):
            amount = Amount()
            amount.add(gpu_ns, nano_usd)
            parts.append(amount)

    def charge(self, names: AccountNames, idle: Amount, warmup: Amount) -> dict[str, Amount]:
        """What each account pays, which is taken out of `idle` and `warmup`."""
        paid: dict[str, Amount] = {}
        for at_utc_s, hour in self._hours.items():
            waste = [*hour.idle, *hour.warmup]
            shares, rests = spread_by_reservation(waste, self._reserved_ns(at_utc_s), hour.used_ns)
            for tenant, amount in shares.items():
                paid.setdefault(names.of_tenant(tenant, at_utc_s), Amount()).take(amount)
            for place, (part, rest) in enumerate(zip(waste, rests, strict=True)):
                left = idle if place < len(hour.idle) else warmup
                left.give(part)
                left.take(rest)
        return paid

    def _reserved_ns(self, hour_at_utc_s: int) -> dict[str, int]:
        day = local_time(hour_at_utc_s, self._zone).date()
        until_utc_s = self._until_utc_s
        length_s = HOUR_S
        if until_utc_s is not None:
            length_s = max(0, min(HOUR_S, until_utc_s - hour_at_utc_s))
        reserved: dict[str, int] = {}
        for entry in self._reservations:
            if (entry.since is None or entry.since <= day) and (
                entry.until is None or day < entry.until
            ):
                gpu_ns = round(Fraction(repr(entry.gpus)) * length_s * _NS)
                reserved[entry.tenant] = reserved.get(entry.tenant, 0) + gpu_ns
        return reserved
