"""Decomposition of a series into trend, season and residual, learnt from the past alone."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec
import numpy as np

from mileage.doctor.rca.series import POINTS_MIN, Floats

__all__ = ["DAY_S", "Decomposition", "Method", "decompose"]

DAY_S: Final = 86_400.0
Method = Literal["stl", "medians", "level"]
"""stl: seasonal-trend decomposition by loess (Cleveland et al. 1990), of statsmodels; medians:
those of each time of day; level: there are too few days to know a season."""

_PERIODS_MIN: Final = 2
_SLOTS_MIN: Final = 4
"""Points of a day below which a season is not told from noise."""
_SLOTS: Final = 96
_DAYS_TAKEN: Final = 7
_REFERENCE_RATIO: Final = 0.4
"""Of a record without a past: its beginning is what the rest is compared with."""


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """`values = trend + seasonal + residual` at each point; NaN where the value is not known.

    `reference` points from the first on were learnt from: none of what is searched, where there is
    a past.
    """

    trend: Floats
    seasonal: Floats
    residual: Floats
    method: Method
    reference: int

    @property
    def expected(self) -> Floats:
        """What would be usual: trend and season."""
        found: Floats = self.trend + self.seasonal
        return found


def decompose(
    values: Floats,
    *,
    step_s: float,
    first: int,
    stl: bool = True,
) -> Decomposition | None:
    """Decompose `values`, of which those from index `first` on are searched.

    Learnt from are the points before `first`, or where fewer than `POINTS_MIN` of these are known,
    the first 40 % of all. None where they are fewer, too: nothing is usual yet. Where two days of
    past are known there is a season of a day; the trend is then the median of the day before each
    point, so that a change of less than half a day stays in the residual. `stl`: take statsmodels'
    STL where it is installed.
    """
    reference = first
    if np.isfinite(values[:first]).sum() < POINTS_MIN:
        reference = math.ceil(_REFERENCE_RATIO * len(values))
    past = values[:reference]
    if np.isfinite(past).sum() < POINTS_MIN:
        return None
    period = round(DAY_S / step_s)
    seasonal = np.zeros(len(values))
    method: Method = "level"
    enough = np.isfinite(past).sum() >= _PERIODS_MIN * period * 0.75
    if reference >= _PERIODS_MIN * period and period >= _SLOTS_MIN and enough:
        profile, method = _profile(past, period, stl=stl)
        seasonal = profile[np.arange(len(values)) % period]
    level = values - seasonal
    trend = np.full(len(values), float(np.nanmedian(level[:reference])))
    if method != "level":
        trend = _daily_trend(level, period, reference)
    return Decomposition(
        trend=trend,
        seasonal=seasonal,
        residual=values - trend - seasonal,
        method=method,
        reference=reference,
    )


def _daily_trend(level: Floats, period: int, reference: int) -> Floats:
    """The median of the day before each point; in the first day, that of the day itself."""
    trend = np.empty(len(level))
    stride = max(1, period // 48)
    last = float(np.nanmedian(level[:reference]))
    for start in range(0, len(level), stride):
        window = level[max(0, start - period) : max(start, period)]
        known = window[np.isfinite(window)]
        if len(known) >= max(_SLOTS_MIN, len(window) // 4):
            last = float(np.median(known))
        trend[start : start + stride] = last
    return trend


def _profile(past: Floats, period: int, *, stl: bool) -> tuple[Floats, Method]:
    """The season of a day that starts where the series does, and how it was found.

    It is learnt from quarters of an hour: a day's course has no finer detail, and noise has.
    """
    width = max(1, period // _SLOTS)
    coarse_period = period // width
    days = len(past) // (coarse_period * width)
    table = past[len(past) - days * coarse_period * width :].reshape(-1, width)
    coarse = _medians(table)
    found = _stl_profile(coarse, coarse_period) if stl else None
    method: Method = "stl"
    if found is None:
        found, method = _median_profile(coarse, coarse_period), "medians"
    found = found - float(np.median(found))
    middles = (np.arange(coarse_period) + 0.5) * width - 0.5
    fine = np.interp(np.arange(period), middles, found, period=coarse_period * width)
    # The table ends where the past ends, which need not be where a day of the grid does.
    return np.roll(fine, (len(past) - days * coarse_period * width) % period), method


def _medians(table: Floats) -> Floats:
    """The median of each row; NaN of one without a number."""
    found = np.full(len(table), np.nan)
    known = np.isfinite(table).any(axis=1)
    found[known] = np.nanmedian(table[known], axis=1)
    return found


def _median_profile(past: Floats, period: int) -> Floats:
    """Deviation of each time of day from its day's median: the median over days, smoothed."""
    table = past.reshape(-1, period)
    table = table - _medians(table)[:, None]
    profile = np.nan_to_num(_medians(table.T))
    wide = np.concatenate([profile[-1:], profile, profile[:1]])
    found: Floats = np.median(np.lib.stride_tricks.sliding_window_view(wide, 3), axis=1)
    return found


def _stl_profile(past: Floats, period: int) -> Floats | None:
    """The season of the last week that STL sees; None where statsmodels is not installed."""
    try:
        from statsmodels.tsa.seasonal import STL
    except ImportError:
        return None
    at = np.arange(len(past), dtype=np.float64)
    known = np.isfinite(past)
    # Smoothed values change slowly: one in ten is computed, those between are on a line.
    jump = max(1, period // 10)
    filled = np.interp(at, at[known], past[known])
    stl = STL(filled, period=period, robust=True, trend_jump=jump, low_pass_jump=jump)
    fit = stl.fit(inner_iter=1, outer_iter=5)
    table = np.asarray(fit.seasonal, dtype=np.float64).reshape(-1, period)[-_DAYS_TAKEN:]
    found: Floats = np.median(table, axis=0)
    return found
