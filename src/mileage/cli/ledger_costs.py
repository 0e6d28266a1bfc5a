"""LedgerCosts: costs for the dashboard and for metrics, out of the ledger's roll-ups."""

from __future__ import annotations

import time
from collections.abc import Callable

from mileage.cli.config import Config, ledger_directory
from mileage.cli.cost_rows import Rows, read_rows
from mileage.cli.cost_source import usage_source
from mileage.cli.cost_window import Window, window_of
from mileage.cli.time_zone import zone_of
from mileage.core.errors import ConfigError, LedgerError
from mileage.gateway.admin.cost_metrics import CostFigures
from mileage.ledger.account_name import AccountNames
from mileage.ledger.calendar import HOUR_S
from mileage.ledger.cost_counters import CostCounters
from mileage.ledger.cost_view import CostView, make_cost_view
from mileage.ledger.hourly_cost import HourlyCost, hourly_costs
from mileage.ledger.price_book import PriceBook

__all__ = ["LedgerCosts"]


class LedgerCosts:
    """Satisfies the admin plane's CostSource; one call at a time, from any thread.

    `config` gives the configuration in force, whose prices hold from the next reading on. Counters
    begin with the hour in which this is made.
    """

    def __init__(
        self, config: Callable[[], Config], *, utc_s: Callable[[], float] = time.time
    ) -> None:
        self._config, self._utc_s = config, utc_s
        self._counters = CostCounters(int(utc_s()) // HOUR_S * HOUR_S)

    def read(self, window: str, by: str) -> CostView:
        """See CostSource."""
        config = self._config()
        billing = config.billing
        zone = zone_of(billing.timezone)
        names = AccountNames(by, zone, billing.team_of, key="by")
        try:
            time_of_it = window_of(window, None, zone, billing.timezone, int(self._utc_s()))
        except ConfigError as error:
            raise error.named("window") from None
        rows = self._rows(config, time_of_it)
        return make_cost_view(
            rows.usage,
            rows.capacity,
            names,
            book=self._book(config),
            since_utc_s=time_of_it.since_utc_s,
            until_utc_s=time_of_it.until_utc_s,
            settled_utc_s=rows.settled_until_utc_s,
            zone=zone,
            spread=billing.idle_spread,
            reservations=billing.reservations,
        )

    def figures(self) -> CostFigures:
        """See CostSource."""
        config = self._config()
        end_utc_s = (int(self._utc_s()) // HOUR_S + 1) * HOUR_S  # counters go by whole hours
        rows = self._between(config, self._counters.open_hour_utc_s, end_utc_s)
        settled = rows.settled_until_utc_s
        used, there = self._counters.take(rows.usage, rows.capacity, settled)
        hour = [] if settled is None else self._hour(config, settled // HOUR_S * HOUR_S - HOUR_S)
        return CostFigures(used=used, there=there, hour=hour, settled_utc_s=settled)

    def _hour(self, config: Config, hour_at_utc_s: int) -> list[HourlyCost]:
        rows = self._between(config, hour_at_utc_s, hour_at_utc_s + HOUR_S)
        names = AccountNames("model", zone_of(config.billing.timezone))
        return hourly_costs(rows.usage, rows.capacity, names, book=self._book(config))

    def _between(self, config: Config, since_utc_s: int, until_utc_s: int) -> Rows:
        zone = zone_of(config.billing.timezone)
        window = Window(since_utc_s, max(since_utc_s, until_utc_s), zone, config.billing.timezone)
        return self._rows(config, window)

    def _rows(self, config: Config, window: Window) -> Rows:
        try:
            with usage_source(config, None) as source:
                return read_rows(source, window)
        except ConfigError as error:
            # No database there: the feeder has not made it yet, and says why where it cannot.
            raise LedgerError(str(ledger_directory(config.ledger)), error.expected) from None

    def _book(self, config: Config) -> PriceBook:
        zone = zone_of(config.billing.timezone)
        return PriceBook(config.billing, zone, usd_per_gpu_hour=config.costs.usd_per_gpu_hour)
