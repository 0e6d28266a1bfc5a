"""Cells: a replica's hour with its rows, its price, and what each part of it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mileage.control.gpu_meter import split
from mileage.ledger.price_book import Price, PriceBook
from mileage.ledger.usage_row import CapacityRow, UsageRow

__all__ = ["Cell", "cells_of"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of one replica. `nano_usd` has the price of each row, of idle, of warm-up and of
    unattributed time, in this order, which sum to that of the hour; all None without a price."""

    hour_at_utc_s: int
    replica: str
    gpu: str
    gpus: float
    rows: list[UsageRow]
    idle_ns: int
    warmup_ns: int
    unattributed_ns: int
    price: Price | None
    nano_usd: list[int] | list[None]


def cells_of(
    usage: Iterable[UsageRow], capacity: Iterable[CapacityRow], book: PriceBook
) -> Iterator[Cell]:
    """The cells of the rows, by hour and replica."""
    rows: dict[tuple[int, str], list[UsageRow]] = {}
    for row in usage:
        rows.setdefault((row.hour_at_utc_s, row.replica), []).append(row)
    there: dict[tuple[int, str], list[CapacityRow]] = {}
    for each in capacity:
        there.setdefault((each.hour_at_utc_s, each.replica), []).append(each)
    for key in sorted(rows.keys() | there.keys()):
        yield _cell(key, rows.get(key, []), there.get(key, []), book)


def _cell(
    key: tuple[int, str], rows: list[UsageRow], capacity: list[CapacityRow], book: PriceBook
) -> Cell:
    hour_at_utc_s, replica = key
    gpu, gpus = (capacity[-1].gpu, capacity[-1].gpus) if capacity else ("", 1.0)
    idle_ns = sum(each.idle_ns for each in capacity)
    warmup_ns = sum(each.warmup_ns for each in capacity)
    parts = [row.gpu_ns for row in rows]
    known_ns = sum(parts) + idle_ns + warmup_ns
    unattributed_ns = max(0, sum(each.capacity_ns for each in capacity) - known_ns)
    parts += [idle_ns, warmup_ns, unattributed_ns]
    whole_ns = known_ns + unattributed_ns
    price = book.price(hour_at_utc_s, replica=replica, gpu=gpu, gpus=gpus)
    nano_usd: list[int] | list[None]
    if price is None:
        nano_usd = [None] * len(parts)
    elif not whole_ns:
        nano_usd = [0] * len(parts)
    else:
        nano_usd = split(price.nano_usd(whole_ns), parts)
    return Cell(
        hour_at_utc_s=hour_at_utc_s,
        replica=replica,
        gpu=gpu,
        gpus=gpus,
        rows=rows,
        idle_ns=idle_ns,
        warmup_ns=warmup_ns,
        unattributed_ns=unattributed_ns,
        price=price,
        nano_usd=nano_usd,
    )
