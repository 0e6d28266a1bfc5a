"""What a GPU costs for a diagnosis: as an option says, else by the configuration's price book."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from mileage.cli.config import load_config
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.time_zone import zone_of
from mileage.core.errors import ConfigError
from mileage.doctor.interval import exactly
from mileage.doctor.money import GpuPriceStated
from mileage.ledger.price_book import PriceBook

__all__ = ["stated_price"]

_USD_MAX: Final = 1e6
_HOUR_S: Final = 3600


def stated_price(arguments: DoctorArguments, document: Mapping[str, Any]) -> GpuPriceStated | None:
    """Dollars per GPU and hour and where they are from; None: the facts' own, or public offers.

    Raises:
        ConfigError: --price is no price, or the configuration is not in order.
    """
    price = arguments.price
    if price is not None:
        if not 0 < price < _USD_MAX:
            raise ConfigError("--price", price, "USD per GPU and hour, above 0")
        return GpuPriceStated(exactly(price), "--price")
    config = load_config(arguments.config, {})
    billing = replace(config.billing, public_prices=False)  # their range is told, not one of them
    own = config.costs.usd_per_gpu_hour
    book = PriceBook(billing, zone_of(billing.timezone), usd_per_gpu_hour=own)
    hour_at_utc_s = int(time.time()) // _HOUR_S * _HOUR_S
    card = document.get("hardware", {}).get("gpu")
    found = book.price(hour_at_utc_s, replica="", gpu=card if isinstance(card, str) else "")
    if found is None:
        return None
    return GpuPriceStated(exactly(found.usd_per_gpu_hour), found.source)
