"""CostSession: configuration, window, rows and prices, as every command of `mileage cost` needs."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mileage.cli.config import Config, load_config
from mileage.cli.cost_arguments import SourceArguments
from mileage.cli.cost_rows import Rows, read_days, read_rows, with_tail
from mileage.cli.cost_source import request_use, usage_source
from mileage.cli.cost_window import Window, window_of
from mileage.cli.time_zone import zone_of
from mileage.core.errors import ConfigError
from mileage.ledger.account_name import ACCOUNTS, AccountNames
from mileage.ledger.bill import Bill, make_bill
from mileage.ledger.bill_requests import by_request
from mileage.ledger.billing_config import BillingConfig, IdleSpread
from mileage.ledger.price_book import PriceBook
from mileage.storage.usage_schema import USAGE_TEXTS

__all__ = ["EMPTY", "CostSession", "session_of"]

_REQUESTS_MAX: Final = 400_000
"""About 2 kB of memory each, 6 kB where all of them are shown."""
_RUN_MAX_S: Final = 86_400
"""Requests that began longer before a window have ended before it."""
EMPTY: Final = (
    "the ledger has no GPU time of these hours: it is booked while `mileage serve` runs, some "
    "minutes after requests ended"
)
"""What is missing where there are no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSession:
    """What the command line and the configuration say, before anything is read."""

    arguments: SourceArguments
    config: Config
    zone: dt.tzinfo
    zone_name: str
    book: PriceBook
    now_utc_s: int

    @property
    def billing(self) -> BillingConfig:
        """Section `[billing]`."""
        return self.config.billing

    def names(self, by: str, accounts: Sequence[str] = ACCOUNTS) -> AccountNames:
        """Of accounts; ConfigError for what they cannot be of."""
        return AccountNames(by, self.zone, self.billing.team_of, accounts=accounts)

    def window(self, since: str, until: str | None) -> Window:
        """Of `--since` and `--until`."""
        return window_of(since, until, self.zone, self.zone_name, self.now_utc_s)

    def rows(self, window: Window, texts: Sequence[str] = USAGE_TEXTS) -> Rows:
        """Of the ledger, hour by hour, of texts only these. ConfigError where there is no ledger,
        LedgerError where it cannot be read."""
        with usage_source(self.config, self.arguments.ledger) as source, source.snapshot():
            return with_tail(source, read_rows(source, window, texts), window)

    def day_rows(self, window: Window, texts: Sequence[str]) -> Rows:
        """Of the ledger, summed by day; errors as of `rows`."""
        with usage_source(self.config, self.arguments.ledger) as source, source.snapshot():
            return with_tail(source, read_days(source, window, texts), window)

    def by_request(self, books: Bill, rows: Rows, window: Window) -> Bill:
        """The bill with an account for each request, of one by BookNames; errors as of `rows`."""
        since, until = window.since_utc_s, window.until_utc_s
        with usage_source(self.config, self.arguments.ledger) as source:
            found = source.requests(since - _RUN_MAX_S, until, rows.tail)
            requests = [request_use(each) for each in islice(found, _REQUESTS_MAX + 1)]
        if len(requests) > _REQUESTS_MAX:
            expected = f"a shorter time: it has more than {_REQUESTS_MAX:,} requests"
            raise ConfigError("--since", window.text(window.since_utc_s), expected)
        return by_request(books, requests, since_utc_s=since, until_utc_s=until)

    def engine_queue_s(self, accounts: Iterable[str]) -> dict[str, float]:
        """Of accounts that are requests: how long their engines say that they waited."""
        ids = [int(name) for name in accounts if name.isascii() and name.isdigit()]
        with usage_source(self.config, self.arguments.ledger) as source:
            told = source.engine_figures(ids)
        return {str(key): one.queue_s for key, one in told.items() if one.queue_s is not None}

    def bill(self, rows: Rows, names: AccountNames, spread: IdleSpread, window: Window) -> Bill:
        """The bill of the rows."""
        return make_bill(
            rows.usage,
            rows.capacity,
            names,
            book=self.book,
            spread=spread,
            reservations=self.billing.reservations,
            zone=self.zone,
            until_utc_s=window.until_utc_s,
        )


def session_of(arguments: SourceArguments) -> CostSession:
    """Raises ConfigError for what is wrong with the configuration or the zone."""
    config = load_config(arguments.config, {})
    name = arguments.timezone or config.billing.timezone
    zone = zone_of(name, "--timezone" if arguments.timezone else "billing.timezone")
    return CostSession(
        arguments=arguments,
        config=config,
        zone=zone,
        zone_name=name,
        book=PriceBook(config.billing, zone, usd_per_gpu_hour=config.costs.usd_per_gpu_hour),
        # What ended within this second is of the window too.
        now_utc_s=math.ceil(time.time()),
    )
