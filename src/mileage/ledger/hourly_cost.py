"""HourlyCost: what the last settled hour cost by model, idle time included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mileage.ledger.account_name import AccountNames
from mileage.ledger.bill import make_bill
from mileage.ledger.price_book import PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["IDLE", "HourlyCost", "hourly_costs"]

IDLE: Final = "(idle)"
"""Of replicas that ran nothing."""
_NANO: Final = 1_000_000_000


class HourlyCost(msgspec.Struct, frozen=True):
    """One model in one hour. Its share of idle and warm-up time is in it. `usd_per_million_tokens`
    is over prompt and output tokens together; None where there was none."""

    model: str
    usd: float
    usd_per_million_tokens: float | None


def hourly_costs(
    usage: Iterable[UsageRow],
    capacity: Iterable[CapacityRow],
    names: AccountNames,
    *,
    book: PriceBook,
) -> list[HourlyCost]:
    """The costs in the hour of these rows, the dearest first; `names` are those of models. They sum
    to what all replicas cost; what has no price is left out."""
    bill = make_bill(usage, capacity, names, book=book, spread="use")
    found = []
    for account in bill.accounts:
        nano_usd = account.total.whole_nano_usd
        if nano_usd is None:
            continue
        tokens = account.use.prompt_tokens + account.use.output_tokens
        each = nano_usd / _NANO / tokens * 1e6 if tokens else None
        found.append(HourlyCost(account.name, nano_usd / _NANO, each))
    idle = bill.idle.whole_nano_usd
    if idle:
        found.append(HourlyCost(IDLE, idle / _NANO, None))
    return found
