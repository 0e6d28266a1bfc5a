"""WindowShares: a replica's GPU time in one window, shared out to the nanosecond."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Basis", "RequestShare", "WindowShares"]

Basis = Literal["steps", "step_totals", "token_times", "first_last", "meter"]
"""What the shares rest on, best first: the engine's own steps; its totals of steps and busy time;
the times of every token; those of the first and the last one; the gateway's processor sharing."""


class RequestShare(msgspec.Struct, frozen=True, gc=False):
    """GPU-nanoseconds of one request in one window.

    `low_ns` to `high_ns` has the true value in about 19 of 20 windows, as far as the basis can
    tell; both are `gpu_ns` where the engine's steps are known.
    """

    request_id: int
    gpu_ns: int
    prefill_ns: int
    """Of `gpu_ns`: for its prompt. The rest is for its answer."""
    recomputed_ns: int
    """Of `prefill_ns`: for what was computed before and lost by a preemption."""
    low_ns: int
    high_ns: int


class WindowShares(msgspec.Struct, frozen=True):
    """One window of one replica: `capacity_ns` is the sum of all shares, `idle_ns` and `warmup_ns`,
    exactly."""

    replica: str
    start_at_utc_ns: int
    end_at_utc_ns: int
    capacity_ns: int
    """GPU-nanoseconds that there were: the window's length times the GPUs, while it was up."""
    shares: tuple[RequestShare, ...]
    idle_ns: int
    warmup_ns: int
    basis: Basis
    saturated: bool = False
    """Requests were preempted or waited inside the engine: the shares are less certain than their
    intervals say, and are marked so wherever they are shown."""
