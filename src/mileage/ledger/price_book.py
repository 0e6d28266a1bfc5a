"""PriceBook: what an hour of a GPU costs, on which day, and by whose word."""

from __future__ import annotations

import datetime as dt
import statistics
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Final, Literal

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as gpu_named
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.price import gpu_prices
from mileage.ledger.billing_config import BillingConfig, PriceConfig
from mileage.ledger.calendar import local_time

__all__ = ["NS_PER_HOUR", "Price", "PriceBasis", "PriceBook"]

PriceBasis = Literal["contract", "replica", "hardware", "costs", "public"]
"""contract, replica, hardware: an entry of `[[billing.prices]]`; costs: `costs.usd_per_gpu_hour`;
public: the median of the catalogue's public prices."""

NS_PER_HOUR: Final = 3_600_000_000_000
_NANO: Final = 1_000_000_000
_HOURS_PER_YEAR: Final = Decimal("8766")
_DAYS_PER_YEAR: Final = 365.25


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU costs for one hour: an exact number, so that sums of it are exact, too."""

    nano_usd_per_gpu_hour: Fraction
    basis: PriceBasis
    source: str
    """Who says so, for people."""
    date: str | None = None
    """Of the word: the day of a list, the days that a contract holds."""
    energy_nano_usd_per_gpu_hour: Fraction = Fraction(0)
    """Of it: for power."""
    note: str | None = None
    """What the price leaves out, where it leaves something out."""

    @property
    def usd_per_gpu_hour(self) -> float:
        """The same in USD, rounded as floats are."""
        return float(self.nano_usd_per_gpu_hour / _NANO)

    def nano_usd(self, gpu_ns: int) -> int:
        """What so much GPU time costs, in whole billionths of a USD, halves rounded up."""
        price = self.nano_usd_per_gpu_hour
        scale = price.denominator * NS_PER_HOUR
        return (2 * gpu_ns * price.numerator + scale) // (2 * scale)


class PriceBook:
    """Tells the price of a replica's GPUs at an hour; None where nobody has told one.

    In this order: the first entry of `[[billing.prices]]` that fits the replica, its GPU and the
    local day on which the hour begins; `costs.usd_per_gpu_hour`; public prices of the GPU.

    `usd_per_gpu_hour` is that of `[costs]`; `zone` is the bill's. Raises ConfigError where energy
    is to be billed and has no price.
    """

    def __init__(
        self, config: BillingConfig, zone: dt.tzinfo, *, usd_per_gpu_hour: float | None = None
    ) -> None:
        self._config, self._zone = config, zone
        self._own_usd = usd_per_gpu_hour
        self._dated = any(entry.since or entry.until for entry in config.prices)
        self._days: dict[int, dt.date] = {}
        self._known: dict[tuple[dt.date | None, str, str, float], Price | None] = {}
        if config.energy.usd_per_kwh is None and any(entry.energy for entry in config.prices):
            expected = "a price: an entry of billing.prices has energy = true"
            raise ConfigError("billing.energy.usd_per_kwh", None, expected)

    def price(
        self, hour_at_utc_s: int, *, replica: str, gpu: str = "", gpus: float = 1.0
    ) -> Price | None:
        """The price in the hour that begins then. `gpu`: any name of the catalogue, empty where it
        is not known; `gpus`: of the replica."""
        day = self._day(hour_at_utc_s) if self._dated else None
        key = (day, replica, gpu, gpus)
        if key not in self._known:
            self._known[key] = self._find(day, replica, gpu, gpus)
        return self._known[key]

    def _day(self, hour_at_utc_s: int) -> dt.date:
        day = self._days.get(hour_at_utc_s)
        if day is None:
            day = self._days[hour_at_utc_s] = local_time(hour_at_utc_s, self._zone).date()
        return day

    def _find(self, day: dt.date | None, replica: str, gpu: str, gpus: float) -> Price | None:
        card = _card(gpu)
        for entry in self._config.prices:
            if _fits(entry, day, replica, card):
                return self._of_entry(entry, day, card, gpus)
        if self._own_usd is not None:
            return Price(
                nano_usd_per_gpu_hour=_nano(self._own_usd),
                basis="costs",
                source="costs.usd_per_gpu_hour of the configuration",
            )
        if card is None or not self._config.public_prices:
            return None
        return _public(card, self._config.price_provider)

    def _of_entry(
        self, entry: PriceConfig, day: dt.date | None, card: Gpu | None, gpus: float
    ) -> Price:
        notes: list[str] = []
        basis: PriceBasis
        if entry.purchase_usd is not None:
            basis, usd = "hardware", _amortised(entry, day)
            if not usd:
                notes.append(f"written off after {entry.years:g} years")
        elif entry.usd_per_replica_hour is not None:
            basis, usd = "replica", _exact(entry.usd_per_replica_hour) / Fraction(gpus)
        else:
            assert entry.usd_per_gpu_hour is not None  # as PriceConfig checks
            basis, usd = "contract", _exact(entry.usd_per_gpu_hour)
        energy = Fraction(0)
        config = self._config.energy
        wanted = entry.energy if entry.energy is not None else entry.purchase_usd is not None
        if wanted and config.usd_per_kwh is not None:
            watts = entry.watts or config.watts or (None if card is None else card.power_w)
            if watts is None:
                notes.append("without energy: the power of the GPU is not known")
            else:
                kwh_per_hour = _exact(watts) / 1000 * _exact(config.pue)
                energy = kwh_per_hour * _exact(config.usd_per_kwh)
        return Price(
            nano_usd_per_gpu_hour=(usd + energy) * _NANO,
            energy_nano_usd_per_gpu_hour=energy * _NANO,
            basis=basis,
            source=entry.name or f"[[billing.prices]], {_what(entry)}",
            date=_dates(entry),
            note="; ".join(notes) or None,
        )


def _fits(entry: PriceConfig, day: dt.date | None, replica: str, card: Gpu | None) -> bool:
    if entry.replica is not None and not _matches(entry.replica, replica):
        return False
    if entry.gpu is not None and (card is None or _card(entry.gpu) is not card):
        return False
    if day is None:
        return True  # no entry has dates
    return (entry.since is None or entry.since <= day) and (
        entry.until is None or day < entry.until
    )


def _matches(pattern: str, name: str) -> bool:
    """Whether the name has the pattern's pieces in their order, with any text at each `*`."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first) or len(name) < len(first) + len(rest[-1]):
        return False
    if not name.endswith(rest[-1]):
        return False
    at, end = len(first), len(name) - len(rest[-1])
    for piece in rest[:-1]:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


@cache
def _card(name: str) -> Gpu | None:
    try:
        return gpu_named(name) if name else None
    except ConfigError:
        return None


def _public(card: Gpu, provider: str | None) -> Price | None:
    offers = [
        offer
        for offer in gpu_prices(card)
        if provider is None or offer.provider.lower().startswith(provider.lower())
    ]
    if not offers:
        return None
    usd = statistics.median(offer.usd_per_gpu_hour for offer in offers)
    low, high = offers[0], offers[-1]
    date: str | None
    if low is high:
        source, date = f"{low.provider}, on demand ({low.source})", low.date
    else:
        source = (
            f"median of {len(offers)} public prices on demand, {low.usd_per_gpu_hour:g} "
            f"({low.provider}, {low.date}) to {high.usd_per_gpu_hour:g} "
            f"({high.provider}, {high.date})"
        )
        days = sorted(offer.date for offer in offers if offer.date[:1].isdigit())
        date = None if not days else days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return Price(nano_usd_per_gpu_hour=_nano(usd), basis="public", source=source, date=date)


def _amortised(entry: PriceConfig, day: dt.date | None) -> Fraction:
    """USD per hour: straight-line, over every hour of its life; 0 when that is over."""
    assert entry.purchase_usd is not None  # as PriceConfig checks
    assert entry.years is not None
    if entry.since is not None and day is not None:
        age_days = (day - entry.since).days
        if age_days >= entry.years * _DAYS_PER_YEAR:
            return Fraction(0)
    loss = _exact(entry.purchase_usd) * (1 - _exact(entry.residual_ratio))
    return loss / (_exact(entry.years) * Fraction(_HOURS_PER_YEAR))


def _what(entry: PriceConfig) -> str:
    if entry.purchase_usd is not None:
        return f"{entry.purchase_usd:g} USD over {entry.years:g} years"
    if entry.usd_per_replica_hour is not None:
        return f"{entry.usd_per_replica_hour:g} USD per replica and hour"
    return f"{entry.usd_per_gpu_hour:g} USD per GPU and hour"


def _dates(entry: PriceConfig) -> str | None:
    if entry.since is None and entry.until is None:
        return None
    since = "" if entry.since is None else f"from {entry.since.isoformat()}"
    until = "" if entry.until is None else f"until {entry.until.isoformat()}"
    return f"{since} {until}".strip()


def _exact(value: float) -> Fraction:
    """The number that was written, not the nearest binary one."""
    return Fraction(repr(float(value)))


def _nano(usd: float) -> Fraction:
    return _exact(usd) * _NANO
