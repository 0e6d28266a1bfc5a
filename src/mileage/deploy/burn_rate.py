"""Burn rates: how fast an objective's error budget may be spent before somebody is told."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mileage.core.bounds import require_range

__all__ = ["BURN_RATES", "BurnRate", "Objective"]

_WINDOW_DAYS_OF_TABLE: Final = 30


class BurnRate(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: the budget burns `factor` times too fast, both over the long window and still over
    the short one, so that it ends soon after the trouble does."""

    factor: float
    """For an objective over 30 days."""
    long: str
    short: str
    severity: Literal["page", "ticket"]


BURN_RATES: Final = (
    BurnRate(factor=14.4, long="1h", short="5m", severity="page"),
    BurnRate(factor=6.0, long="6h", short="30m", severity="page"),
    BurnRate(factor=1.0, long="3d", short="6h", severity="ticket"),
)
"""2 % of the budget in an hour, 5 % in six hours, 10 % in three days.

Source: B. Beyer et al., "The Site Reliability Workbook", O'Reilly 2018, chapter 5, table 5-8."""
_MISSED_RATIO_MAX: Final = 0.9


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What share of streams is to meet its target, over how many days."""

    ratio: float = 0.99
    window_days: float = 30.0

    def __post_init__(self) -> None:
        require_range("--objective", self.ratio, 0.5, 0.99999)
        require_range("--objective-days", self.window_days, 1.0, 90.0)

    def missed_ratio(self, rate: BurnRate) -> float:
        """Share of missed streams from which on the alert is due.

        Never above 0.9: with an objective of 90 % no budget burns faster than tenfold, and an alert
        at 14.4 would keep silent though nothing works.
        """
        factor = rate.factor * self.window_days / _WINDOW_DAYS_OF_TABLE
        return round(min(_MISSED_RATIO_MAX, factor * (1.0 - self.ratio)), 6)
