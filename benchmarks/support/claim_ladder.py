"""Loads at which a claim is tested that depends on it: the same shares of capacity for every row.

A technique that lets an engine bear more makes any latency as much better as one likes, at a load
that the side without it just no longer bears. So no load is chosen by row: each such figure is
taken at fixed shares of what the side without the technique bears, and judged at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.support.claim_lab import Ratio
from benchmarks.support.claim_row import Gain

__all__ = ["LADDER", "SHARES", "SHOWN", "laddered", "rate_text"]

SHARES = (0.5, 0.8, 1.0, 1.2)
"""Of the requests per second that the side without the technique answers when it is saturated."""
SHOWN = 0.8
"""The share whose figure stands in the table of all rows."""
LADDER = (
    "A latency depends on the load, and may be made as much better as one likes at a load that the "
    "side without the technique just no longer bears. Such figures are taken at the same four "
    f"loads in every row, {', '.join(f'{share:g}' for share in SHARES)} times what the side "
    "without the technique answers when it is saturated, and judged at each: where the words "
    "differ, the figure **depends on load**. The table shows that at "
    f"{SHOWN:g}, and the range over all four. From 1 on the queue grows for as long as requests "
    "come, so that those figures tell the direction; their size is that of the trace's length."
)
"""The rule in words, for the page."""


def rate_text(rate: float) -> str:
    """A rate as a command takes it."""
    return f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"


def laddered(
    capacity_rps: float, at: Callable[[float], Ratio], shown: Callable[[Ratio], Gain]
) -> Gain:
    """The figure at each load; `at` tests a rate, in requests per second."""
    steps: Sequence[tuple[float, Gain]] = [
        (share, shown(at(float(rate_text(capacity_rps * share))))) for share in SHARES
    ]
    usual = dict(steps)[SHOWN]
    loads = tuple(
        (f"{share:g} of it, {rate_text(capacity_rps * share)}/s", gain) for share, gain in steps
    )
    return Gain(usual.ratio, usual.shown, usual.low, usual.high, loads)
