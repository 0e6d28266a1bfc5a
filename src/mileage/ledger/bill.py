"""Bill: GPU time and money by account; accounts and idle time sum to the whole, to the unit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from mileage.control.gpu_meter import split
from mileage.ledger.account_name import OTHERS, UNATTRIBUTED, WARM_UP, AccountNames, is_own
from mileage.ledger.bill_cells import Cell, cells_of
from mileage.ledger.bill_period import BillPeriod
from mileage.ledger.bill_sums import Amount, UseSums
from mileage.ledger.billing_config import IdleSpread, ReservationConfig
from mileage.ledger.price_book import Price, PriceBook
from mileage.ledger.reserved import Reserved
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["Account", "Bill", "BilledReplica", "kinds_of_use", "make_bill"]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the bill. All times are GPU-nanoseconds, money is billionths of a USD.

    `use` and `spread` (its share of idle and warm-up time) are what `total` is made of. The true
    use is in `use.low_ns` to `use.high_ns`, as `mileage.ledger.window_shares` says.
    """

    name: str
    total: Amount
    use: UseSums
    spread: Amount
    idle: Amount | None = None
    """Of an account that is a period: idle time in it, which is beside the total."""

    @property
    def own(self) -> bool:
        """A tenant, a model and so on; not one of those in parentheses."""
        return is_own(self.name)


class BilledReplica(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica has on the bill; `price` is that of its last hour."""

    replica: str
    gpu: str
    gpus: float
    total: Amount
    idle: Amount
    warmup: Amount
    price: Price | None


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """The whole: `total` = all accounts + `idle`, exactly, in GPU time and in money.

    Accounts are dearest first, or in order where they are periods. `idle` is what is left of
    `idle_all` when some of it was spread; likewise `warmup`, which is among the accounts, too.
    `where`: prefill, decode, recomputed, failed, idle, warmup and unattributed, which sum to the
    total.
    """

    by: str
    accounts: tuple[Account, ...]
    total: Amount
    idle: Amount
    idle_all: Amount
    warmup_all: Amount
    where: dict[str, Amount]
    replicas: tuple[BilledReplica, ...]

    def top(self, count: int) -> Bill:
        """With the first `count` accounts, and the others as one. Those in parentheses stay."""
        own = [account for account in self.accounts if account.own]
        if len(own) <= count:
            return self
        kept = {account.name for account in own[:count]}
        shown = [a for a in self.accounts if a.name in kept or not a.own]
        rest = [account for account in own if account.name not in kept]
        return msgspec.structs.replace(self, accounts=(*shown, _together(OTHERS, rest)))


def make_bill(
    usage: Iterable[UsageRow],
    capacity: Iterable[CapacityRow],
    names: AccountNames,
    *,
    book: PriceBook,
    spread: IdleSpread = "none",
    reservations: Iterable[ReservationConfig] = (),
    zone: dt.tzinfo = dt.UTC,
    until_utc_s: int | None = None,
) -> Bill:
    """The bill of all rows given, in any order.

    Each hour of a replica has a price; what it costs is rounded to a billionth of a USD once, and
    shared to the rows, idle and warm-up time by largest remainder. So bills of parts of a time sum
    to the bill of all of it, and bills by tenant, by model and so on to the same. Idle time that is
    spread by use is shared within the whole time, or within each period where accounts are periods.

    `until_utc_s`: an hour that is not over yet has only so much of a reservation.
    """
    held = Reserved(reservations, zone, until_utc_s) if spread == "reservation" else None
    periods: dict[str, BillPeriod] = {}
    for cell in cells_of(usage, capacity, book):
        period = periods.setdefault(names.of_hour(cell.hour_at_utc_s), BillPeriod())
        period.add(cell, names)
        if held is not None:
            held.add(cell)
    accounts: dict[str, UseSums] = {}
    spread_to: dict[str, Amount] = {}
    idle, warmup = Amount(), Amount()
    for period in periods.values():
        for name, sums in period.accounts.items():
            accounts.setdefault(name, UseSums()).take_all(sums)
        for waste, left in ((period.idle, idle), (period.warmup, warmup)):
            paid, rest = period.by_use(waste) if spread == "use" else ({}, waste)
            for name, amount in paid.items():
                spread_to.setdefault(name, Amount()).take(amount)
            for amount in rest.values():
                left.take(amount)
    if held is not None:
        for name, amount in held.charge(names, idle, warmup).items():
            spread_to.setdefault(name, Amount()).take(amount)
    return _bill(names, periods, accounts, spread_to, idle, warmup)


def _bill(
    names: AccountNames,
    periods: dict[str, BillPeriod],
    accounts: dict[str, UseSums],
    spread_to: dict[str, Amount],
    idle: Amount,
    warmup: Amount,
) -> Bill:
    made = [
        _account(name, accounts.get(name, UseSums()), spread_to.get(name, Amount()))
        for name in ({**periods} if names.by_time else {**accounts, **spread_to})
    ]
    if names.by_time:
        made = [
            msgspec.structs.replace(account, idle=_sum(periods[account.name].idle.values()))
            for account in made
        ]
    else:
        made.sort(key=lambda a: (not a.own, -a.total.nano_usd, -a.total.gpu_ns, a.name))
    every = list(periods.values())
    idle_all = _sum(amount for period in every for amount in period.idle.values())
    warmup_all = _sum(amount for period in every for amount in period.warmup.values())
    unattributed = _sum(amount for period in every for amount in period.unattributed.values())
    for name, amount in ((WARM_UP, warmup), (UNATTRIBUTED, unattributed)):
        if amount.gpu_ns:
            made.append(_account(name, UseSums(), amount))
    where = _where(accounts.values())
    where |= {"idle": idle_all, "warmup": warmup_all, "unattributed": unattributed}
    return Bill(
        by=names.group,
        accounts=tuple(made),
        total=_sum((idle, *(account.total for account in made))),
        idle=idle,
        idle_all=idle_all,
        warmup_all=warmup_all,
        where=where,
        replicas=_replicas(every),
    )


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = Amount()
    for amount in amounts:
        total.take(amount)
    return total


def _account(name: str, use: UseSums, spread: Amount) -> Account:
    total = Amount()
    total.take(use)
    total.take(spread)
    return Account(name=name, total=total, use=use, spread=spread)


def _together(name: str, accounts: list[Account]) -> Account:
    use, spread = UseSums(), Amount()
    for account in accounts:
        use.take_all(account.use)
        spread.take(account.spread)
    return _account(name, use, spread)


def kinds_of_use(use: UseSums) -> dict[str, Amount]:
    """Use by what it was for; money is in proportion to GPU time."""
    kinds = {
        "prefill": use.prefill_ns,
        "decode": use.decode_ns,
        "recomputed": use.recomputed_ns,
        "failed": use.failed_ns,
    }
    if not use.gpu_ns:
        return {kind: Amount() for kind in kinds}
    weights = list(kinds.values())
    money, unpriced = split(use.nano_usd, weights), split(use.unpriced_ns, weights)
    return {
        kind: Amount(gpu_ns, usd, ns)
        for (kind, gpu_ns), usd, ns in zip(kinds.items(), money, unpriced, strict=True)
    }


def _where(accounts: Iterable[UseSums]) -> dict[str, Amount]:
    found = kinds_of_use(UseSums())
    for sums in accounts:
        for kind, amount in kinds_of_use(sums).items():
            found[kind].take(amount)
    return found


def _replicas(periods: list[BillPeriod]) -> tuple[BilledReplica, ...]:
    last: dict[str, Cell] = {}
    sums: dict[str, tuple[Amount, Amount, Amount]] = {}
    for period in periods:
        for replica, cell in period.last.items():
            if replica not in last or last[replica].hour_at_utc_s <= cell.hour_at_utc_s:
                last[replica] = cell
            total, idle, warmup = sums.setdefault(replica, (Amount(), Amount(), Amount()))
            total.take(period.totals[replica])
            idle.take(period.idle.get(replica, Amount()))
            warmup.take(period.warmup.get(replica, Amount()))
    return tuple(
        BilledReplica(
            replica=replica,
            gpu=last[replica].gpu,
            gpus=last[replica].gpus,
            total=sums[replica][0],
            idle=sums[replica][1],
            warmup=sums[replica][2],
            price=last[replica].price,
        )
        for replica in sorted(last)
        if replica or sums[replica][0].gpu_ns  # requests that never ran have none
    )
