"""What one rule makes of the facts: finding, clear, or not enough evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.doctor.check import Check
from mileage.doctor.interval import Interval

__all__ = ["Change", "Opinion", "Outcome", "Severity", "Sign"]

Outcome = Literal["finding", "clear", "not_enough_evidence"]

Severity = Literal["info", "warning", "critical"]
"""info: worth knowing, no harm shown. warning: costs money or time. critical: does not serve."""


class Sign(msgspec.Struct, frozen=True):
    """One check whose answer is known, and what it adds to the log odds of the cause."""

    check: Check
    weight: float


class Change(msgspec.Struct, frozen=True):
    """A setting to change: its vocabulary name and its new value; None: remove it."""

    setting: str
    value: float | bool | str | None
    takes_effect: str | None = None
    """When: after a restart, and of what, or at once. Filled in by the diagnosis where known."""


class Opinion(msgspec.Struct, frozen=True):
    """The outcome of one rule with everything that it rests on."""

    outcome: Outcome
    log_odds: float
    """For the cause against it, natural logarithm; confidence is their logistic function."""
    signs: tuple[Sign, ...]
    missing: tuple[str, ...]
    """Keys of facts that were asked for and are not known."""
    severity: Severity = "warning"
    advice: str = ""
    """What to do here, in a sentence or two, with the values of this deployment."""
    changes: tuple[Change, ...] = ()
    waste_ratio: Interval | None = None
    """Share of what the GPUs cost that this cause wastes; None where it cannot be known."""
    loss_usd_per_month: Interval | None = None
    """Where the loss is not a share of the GPUs' cost: itself."""
