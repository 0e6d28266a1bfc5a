"""What a finding costs per month: the share of the GPUs' cost that it wastes."""

from __future__ import annotations

import msgspec

from mileage.costmodel.price import gpu_prices
from mileage.doctor.evidence import Evidence
from mileage.doctor.finding import Loss
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Opinion

__all__ = ["HOURS_PER_MONTH", "GpuBill", "GpuPriceStated", "loss_of", "month_of"]

HOURS_PER_MONTH = 730.0


class GpuPriceStated(msgspec.Struct, frozen=True):
    """Dollars per GPU and hour that somebody has said, and where."""

    usd_per_gpu_hour: Interval
    source: str


class GpuBill(msgspec.Struct, frozen=True):
    """Dollars per month for all GPUs of the deployment, and where the figure is from."""

    usd_per_month: Interval
    basis: str


def month_of(evidence: Evidence, price: GpuPriceStated | None = None) -> GpuBill | None:
    """The monthly bill of the GPUs, or None where their price or number is not known.

    `price`: as its user or the price book says; else the price in the facts, else the range of
    public offers for that card.
    """
    gpus = _gpus(evidence)
    if gpus is None:
        return None
    stated = evidence.number("gpu_price_usd_per_h")
    if price is not None:
        per_hour, source = price.usd_per_gpu_hour, price.source
    elif stated.known:
        per_hour, source = stated.value, "the stated price"
    else:
        card = Machine(evidence).gpu
        offers = gpu_prices(card) if card is not None else ()
        if not offers:
            return None
        per_hour = Interval(offers[0].usd_per_gpu_hour, offers[-1].usd_per_gpu_hour)
        source = f"{len(offers)} public offers"
    if not per_hour.bounded or not gpus.bounded:
        return None
    month = per_hour.times(gpus).times(exactly(HOURS_PER_MONTH))
    basis = f"{gpus.shown()} GPUs x {per_hour.shown()} USD/h ({source}) x {HOURS_PER_MONTH:g} h"
    return GpuBill(month, basis)


def loss_of(opinion: Opinion, bill: GpuBill | None) -> Loss | None:
    """Dollars per month that the cause costs; None where it cannot be known."""
    own = opinion.loss_usd_per_month
    if own is not None and own.bounded:
        return Loss(low=own.low, high=own.high, basis="what the facts state")
    if opinion.waste_ratio is None or bill is None:
        return None
    share = opinion.waste_ratio.clipped(0.0, 1.0)
    month = bill.usd_per_month.times(share)
    basis = f"{share.shown()} of {bill.basis}"
    return Loss(low=round(month.low, 2), high=round(month.high, 2), basis=basis)


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
