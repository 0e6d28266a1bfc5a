"""Configuration of the bill: section `[billing]`."""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

import msgspec

from mileage.core.bounds import require_positive, require_range, require_up_to
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu
from mileage.costmodel.price import PRICES

__all__ = [
    "AnomalyConfig",
    "BillingConfig",
    "EnergyConfig",
    "ForecastConfig",
    "IdleSpread",
    "PriceConfig",
    "ReservationConfig",
    "TeamConfig",
]

IdleSpread = Literal["none", "use", "reservation"]

_USD_MAX = 1e9
_YEARS_MIN, _YEARS_MAX = 0.01, 30.0
_RATE_MAX = 1e9


class PriceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[billing.prices]]` entry: a contract, or hardware of one's own. Of the entries that fit
    a replica and an hour the first holds, before `costs.usd_per_gpu_hour` and public prices."""

    name: str | None = None
    """What bills call it."""
    gpu: str | None = None
    """Only for this GPU, by any name in the catalogue; None: for any."""
    replica: str | None = None
    """Only for this replica; `*` stands for any text. None: for any."""
    since: dt.date | None = None
    """First day on which it holds, in the time zone of the bill."""
    until: dt.date | None = None
    """The day after the last one."""
    usd_per_gpu_hour: float | None = None
    """For one GPU and hour; or `usd_per_replica_hour`, or `purchase_usd`."""
    usd_per_replica_hour: float | None = None
    """For a whole replica and hour, however many GPUs it has."""
    purchase_usd: float | None = None
    """What one GPU cost with its share of the machine. Its price is spread evenly over every hour
    of `years`, in use or not."""
    years: float | None = None
    """How long hardware is used."""
    residual_ratio: float = 0.0
    """Of `purchase_usd`: what it is worth after `years`."""
    energy: bool | None = None
    """Add what power costs by `[billing.energy]`; None: where `purchase_usd` is given."""
    watts: float | None = None
    """Power of one GPU with its share of the machine; None: as `[billing.energy]` says."""

    def __post_init__(self) -> None:
        key = "billing.prices.{}".format
        kinds = ("usd_per_gpu_hour", "usd_per_replica_hour", "purchase_usd")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ConfigError(
                key(given[-1] if given else kinds[0]),
                " and ".join(given) or None,
                f"exactly one of {', '.join(kinds)} in each entry",
            )
        require_range(key(given[0]), getattr(self, given[0]), 0.0, _USD_MAX)
        if self.gpu is not None:
            _check_gpu(key("gpu"), self.gpu)
        if self.replica == "":
            raise ConfigError(key("replica"), "", "the name of a replica, or no such key")
        _check_dates("billing.prices", self.since, self.until)
        self._check_hardware()
        if self.watts is not None:
            require_up_to(key("watts"), self.watts, 1e6)

    def _check_hardware(self) -> None:
        if self.purchase_usd is None:
            if self.years is not None or self.residual_ratio:
                name = "years" if self.years is not None else "residual_ratio"
                expected = "no such key beside an hourly price: it goes with purchase_usd"
                raise ConfigError(f"billing.prices.{name}", getattr(self, name), expected)
            return
        if self.years is None:
            raise ConfigError("billing.prices.years", None, "how long the hardware is used")
        require_range("billing.prices.years", self.years, _YEARS_MIN, _YEARS_MAX)
        require_range("billing.prices.residual_ratio", self.residual_ratio, 0.0, 1.0)


class EnergyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[billing.energy]`: what power costs, for hardware of one's own."""

    usd_per_kwh: float | None = None
    """None: energy is not billed."""
    pue: float = 1.3
    """Power of the whole site over power of its machines."""
    watts: float | None = None
    """Power of one GPU with its share of the machine, as measured. None: the maker's limit of the
    GPU in the catalogue, which real use stays below."""

    def __post_init__(self) -> None:
        if self.usd_per_kwh is not None:
            require_range("billing.energy.usd_per_kwh", self.usd_per_kwh, 0.0, 100.0)
        require_range("billing.energy.pue", self.pue, 1.0, 10.0)
        if self.watts is not None:
            require_up_to("billing.energy.watts", self.watts, 1e6)


class ReservationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[billing.reservations]]` entry: GPUs that are kept for a tenant."""

    tenant: str
    """Who pays for them, used or not, where `idle_spread` is `reservation`."""
    gpus: float
    """How many; a part of one, too."""
    since: dt.date | None = None
    """First day, in the time zone of the bill."""
    until: dt.date | None = None
    """The day after the last one."""

    def __post_init__(self) -> None:
        if not self.tenant:
            raise ConfigError("billing.reservations.tenant", "", "the name of a tenant")
        require_up_to("billing.reservations.gpus", self.gpus, 1e6)
        _check_dates("billing.reservations", self.since, self.until)


class TeamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[billing.teams.NAME]`: tenants that are one team's."""

    tenants: tuple[str, ...]
    """Their names. A tenant is of one team, or of none."""


class ForecastConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[billing.forecast]`: what the end of the month is told by."""

    history_days: int = 56
    """Days before now that it learns from, at most."""
    history_days_min: int = 3
    """With fewer there is no forecast."""
    level_ratio: float = 0.9
    """How often the interval is meant to hold."""

    def __post_init__(self) -> None:
        require_range("billing.forecast.history_days", self.history_days, 7, 366)
        require_range("billing.forecast.history_days_min", self.history_days_min, 2, 28)
        require_range("billing.forecast.level_ratio", self.level_ratio, 0.5, 0.99)


class AnomalyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[billing.anomalies]`: which hours stand out."""

    history_days: int = 56
    """Days before an hour that it is compared with, at most."""
    deviations: float = 6.0
    """An hour stands out where it is so many robust standard deviations (1.4826 times the median
    absolute deviation) from the median of the same hour of the week."""
    change_ratio_min: float = 0.5
    """And differs from what was expected by at least this part of it."""
    gpu_s_min: float = 60.0
    """And by at least so many GPU-seconds."""

    def __post_init__(self) -> None:
        require_range("billing.anomalies.history_days", self.history_days, 7, 366)
        require_range("billing.anomalies.deviations", self.deviations, 1.0, 1000.0)
        require_range("billing.anomalies.change_ratio_min", self.change_ratio_min, 0.0, 1e6)
        require_range("billing.anomalies.gpu_s_min", self.gpu_s_min, 0.0, 1e12)


class BillingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[billing]`: how GPU time becomes a bill."""

    timezone: str = "UTC"
    """Days and months are those of this zone, such as Europe/Berlin."""
    currency: str = "USD"
    """Three letters; shown beside USD, in which all prices are."""
    currency_per_usd: float | None = None
    """Units of `currency` for one USD; required where that is another one."""
    idle_spread: IdleSpread = "none"
    """Who pays for time in which GPUs were up and did nothing: `none`, an account of its own;
    `use`, all in proportion to their use; `reservation`, those who did not use what they had
    reserved."""
    public_prices: bool = True
    """Where nothing else says what a GPU costs, take the median of the public prices that the
    catalogue has of it."""
    price_provider: str | None = None
    """Of public prices, only those of this provider (the beginning of its name)."""
    cached_token_ratio: float | None = None
    """What a prompt token out of the cache costs, of one that is computed. None: as the ledger's
    own hours show, where they can."""
    prices: tuple[PriceConfig, ...] = ()
    energy: EnergyConfig = EnergyConfig()
    reservations: tuple[ReservationConfig, ...] = ()
    teams: dict[str, TeamConfig] = {}
    forecast: ForecastConfig = ForecastConfig()
    anomalies: AnomalyConfig = AnomalyConfig()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Z]{3}", self.currency):
            raise ConfigError("billing.currency", self.currency, "three capital letters, as EUR")
        rate = self.currency_per_usd
        if rate is not None:
            require_positive("billing.currency_per_usd", rate, "units for one USD")
            require_up_to("billing.currency_per_usd", rate, _RATE_MAX)
        if self.currency == "USD" and rate not in (None, 1.0):
            raise ConfigError("billing.currency_per_usd", rate, "1, or no such key: it is USD")
        if self.currency != "USD" and rate is None:
            expected = f"how many {self.currency} are one USD"
            raise ConfigError("billing.currency_per_usd", None, expected)
        if self.cached_token_ratio is not None:
            require_range("billing.cached_token_ratio", self.cached_token_ratio, 0.0, 1.0)
        provider = self.price_provider
        if provider is not None and not any(
            offer.provider.lower().startswith(provider.lower()) for offer in PRICES
        ):
            known = ", ".join(sorted({offer.provider.split()[0].strip(",") for offer in PRICES}))
            raise ConfigError("billing.price_provider", provider, f"one of {known}")
        self._check_tenants()

    def _check_tenants(self) -> None:
        owners: dict[str, str] = {}
        for team, config in self.teams.items():
            for tenant in config.tenants:
                if (owner := owners.setdefault(tenant, team)) != team:
                    key, expected = f"billing.teams.{team}.tenants", f"no tenant of team {owner}"
                    raise ConfigError(key, tenant, expected)
        if self.idle_spread == "reservation" and not self.reservations:
            expected = "none or use, without any [[billing.reservations]]"
            raise ConfigError("billing.idle_spread", "reservation", expected)

    @property
    def team_of(self) -> dict[str, str]:
        """Tenant -> team, of those that have one."""
        return {tenant: team for team, c in self.teams.items() for tenant in c.tenants}


def _check_dates(section: str, since: dt.date | None, until: dt.date | None) -> None:
    if since is not None and until is not None and until <= since:
        raise ConfigError(f"{section}.until", until.isoformat(), f"a day after {since.isoformat()}")


def _check_gpu(key: str, name: str) -> None:
    try:
        gpu(name)
    except ConfigError as error:
        raise error.named(key) from None
