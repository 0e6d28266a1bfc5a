"""What an hour of a GPU costs in a simulation, and by whose word."""

from __future__ import annotations

import statistics
from typing import Final

from mileage.cli.simulate_arguments import RunArguments
from mileage.control.config import CostsConfig
from mileage.core.bounds import require_range
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.price import gpu_prices

__all__ = ["price_of"]

_PRICE_MAX_USD: Final = 1e6


def price_of(
    arguments: RunArguments, costs: CostsConfig, card: Gpu
) -> tuple[float | None, str | None]:
    """USD per GPU and hour, and where that is from; None where nobody tells. Raises ConfigError."""
    if arguments.price is not None:
        require_range("--price", arguments.price, 0.0, _PRICE_MAX_USD)
        return arguments.price, "--price"
    if costs.usd_per_gpu_hour is not None:
        return costs.usd_per_gpu_hour, "costs.usd_per_gpu_hour of the configuration"
    offers = gpu_prices(card)
    if not offers:
        return None, None
    usd = statistics.median(offer.usd_per_gpu_hour for offer in offers)
    low, high = offers[0], offers[-1]
    if low is high:
        return usd, f"{low.provider}, on demand ({low.source}, {low.date})"
    of_low = f"{low.usd_per_gpu_hour:g} ({low.provider}, {low.date})"
    of_high = f"{high.usd_per_gpu_hour:g} ({high.provider}, {high.date})"
    return usd, f"median of {len(offers)} public prices on demand, {of_low} to {of_high}"
