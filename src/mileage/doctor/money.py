"""What a finding costs per month: the share of the GPUs' cost that it wastes."""

from __future__ import annotations

import msgspec

from mileage.costmodel.price import gpu_prices
from mileage.doctor.evidence import Evidence
from mileage.doctor.finding import Loss
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Opinion

__all__ = [
    "HOURS_PER_MONTH",
    "Bill",
    "GpuBill",
    "GpuPriceStated",
    "NoBill",
    "loss_of",
    "month_of",
    "no_loss_because",
]

HOURS_PER_MONTH = 730.0


class GpuPriceStated(msgspec.Struct, frozen=True):
    """Dollars per GPU and hour that somebody has said, and where."""

    usd_per_gpu_hour: Interval
    source: str


class GpuBill(msgspec.Struct, frozen=True):
    """Dollars per month for all GPUs of the deployment, and where the figure is from."""

    usd_per_month: Interval
    basis: str


class NoBill(msgspec.Struct, frozen=True):
    """Why the bill of the GPUs is not known."""

    why: str


Bill = GpuBill | NoBill


def month_of(evidence: Evidence, price: GpuPriceStated | None = None) -> Bill:
    """The monthly bill of the GPUs; else what is not known: their price or number.

    `price`: as its user or the price book says; else the price in the facts, else the range of
    public offers for that card.
    """
    gpus = _gpus(evidence)
    if gpus is None or not gpus.bounded:
        return NoBill("the number of GPUs is not known (`--fact hardware.count=N`)")
    stated = evidence.number("gpu_price_usd_per_h")
    if price is not None:
        per_hour, source = price.usd_per_gpu_hour, price.source
    elif stated.known:
        per_hour, source = stated.value, "the stated price"
    else:
        card = Machine(evidence).gpu
        offers = gpu_prices(card) if card is not None else ()
        if not offers:
            which = (
                "the GPU is not known" if card is None else f"nobody offers {card.name} publicly"
            )
            return NoBill(f"the GPUs' price is not known: none is stated (`--price`), and {which}")
        per_hour = Interval(offers[0].usd_per_gpu_hour, offers[-1].usd_per_gpu_hour)
        source = f"{len(offers)} public offers"
    if not per_hour.bounded:
        return NoBill("the GPUs' price is known to one side only")
    month = per_hour.times(gpus).times(exactly(HOURS_PER_MONTH))
    basis = f"{gpus.shown()} GPUs x {per_hour.shown()} USD/h ({source}) x {HOURS_PER_MONTH:g} h"
    return GpuBill(month, basis)


def loss_of(opinion: Opinion, bill: Bill) -> Loss | None:
    """Dollars per month that the cause costs; None where it cannot be known."""
    own = opinion.loss_usd_per_month
    if own is not None and own.bounded:
        return Loss(low=own.low, high=own.high, basis="what the facts state")
    if opinion.waste_ratio is None or isinstance(bill, NoBill):
        return None
    share = opinion.waste_ratio.clipped(0.0, 1.0)
    month = bill.usd_per_month.times(share)
    basis = f"{share.shown()} of {bill.basis}"
    return Loss(low=round(month.low, 2), high=round(month.high, 2), basis=basis)


def no_loss_because(opinion: Opinion, bill: Bill) -> str:
    """Why `loss_of` is None, for people."""
    if opinion.waste_ratio is None:
        return "which share of the GPUs' cost this cause wastes is not known"
    return bill.why if isinstance(bill, NoBill) else "the loss is known to one side only"


def _gpus(evidence: Evidence) -> Interval | None:
    """GPUs of all replicas; `hardware.count` is all that the deployment uses."""
    count = evidence.number("hardware.count")
    if count.known:
        return count.value
    per_replica = Machine(evidence).gpus_per_replica
    replicas = evidence.number("topology.replicas")
    if not per_replica.bounded:
        return None
    return per_replica.times(replicas.value) if replicas.known else per_replica
