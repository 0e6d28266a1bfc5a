"""GeneratorUse: how hard the load generator itself worked, and whether it was the limit."""

from __future__ import annotations

import msgspec

__all__ = [
    "CPU_RATIO_MAX",
    "LAG_MAX_S",
    "LAG_MIN_S",
    "LAG_RATIO_MAX",
    "GeneratorUse",
    "limit_reason",
]

CPU_RATIO_MAX = 0.9
"""A thread this busy has no room left: answers wait for it to be read."""
LAG_MAX_S = 0.02
"""Lag at p99 that no result bears."""
LAG_RATIO_MAX = 0.1
"""Lag at p99, as a share of the median latency, above which it is the generator's own figure."""
LAG_MIN_S = 0.005
"""Lag at p99 that is borne however fast the server is: on a machine with other work to do, one
slice of a core's time is gone before anybody notices."""


class GeneratorUse(msgspec.Struct, frozen=True, kw_only=True):
    """The generator's own part in a run, over its measured window.

    A server that stalls does not make it `limited`: calls still leave on time, and their latency
    is counted from their schedule. None: nothing was sampled.
    """

    lag_p50_s: float | None = None
    """How late calls were taken up (`taken_s - scheduled_s`), also those that were never sent."""
    lag_p99_s: float | None = None
    lag_max_s: float | None = None
    loop_lag_p50_s: float | None = None
    """How late a beat of the event loop came, 100 a second: what was there to be read waited up to
    as long. In closed loops this is the only lag there is, as calls have no schedule."""
    loop_lag_p99_s: float | None = None
    loop_lag_max_s: float | None = None
    cpu_ratio: float | None = None
    """CPU time of the generator's thread over the time that passed."""
    cores_ratio: float | None = None
    """How busy the cores were that it may run on, with whatever ran there."""
    run_queue_ratio: float | None = None
    """Share of the time that the thread was ready to run and waited for a core."""
    connections: int = 0
    """Connections that were made."""
    limited: bool = False
    """The generator, not the server, was the limit: the run says nothing about the server."""
    reason: str | None = None
    """Why it was."""


def limit_reason(use: GeneratorUse, *, latency_p50_s: float | None, closed: bool) -> str | None:
    """Why the generator was the limit, in words; None where it was not.

    `latency_p50_s`: median of E2E of the answers, None where there was none. The lag at p99 may be
    `LAG_RATIO_MAX` of it, but always `LAG_MIN_S` and never more than `LAG_MAX_S`.
    """
    if use.cpu_ratio is not None and use.cpu_ratio > CPU_RATIO_MAX:
        return (
            f"its thread was busy for {use.cpu_ratio:.0%} of the time, above {CPU_RATIO_MAX:.0%}: "
            "ask for less load, or share it between several generators"
        )
    bound_s = LAG_MAX_S
    if latency_p50_s is not None:
        bound_s = min(LAG_MAX_S, max(LAG_MIN_S, LAG_RATIO_MAX * latency_p50_s))
    lags = [("its event loop was late", use.loop_lag_p99_s)]
    if not closed:
        lags.append(("calls left late", use.lag_p99_s))
    for what, lag_s in lags:
        if lag_s is not None and lag_s > bound_s:
            text = f"{what}, by {lag_s * 1000:.1f} ms at p99, above {bound_s * 1000:.1f} ms"
            if use.run_queue_ratio is not None and use.run_queue_ratio > 0.05:
                text += f"; it waited for a core {use.run_queue_ratio:.0%} of the time"
            return text
    return None
