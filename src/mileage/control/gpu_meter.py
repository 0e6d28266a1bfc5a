"""GpuMeter: shares one replica's busy GPU time out to the requests in flight, to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["GpuMeter", "split", "weight_of"]

_WEIGHT_SCALE = 16
_V_BITS = 32
"""Fraction bits of the virtual clock."""
_GPU_BITS = 20
"""Fraction bits of the number of GPUs."""
_NS = 1_000_000_000


def weight_of(work: float) -> int:
    """The weight of a request by its work (`mileage.policy.load.work_of`)."""
    return max(1, round(work * _WEIGHT_SCALE))


class GpuMeter:
    """Processor sharing: of each moment every request in flight gets a part by its weight.

    A virtual clock V advances by dt * gpus / (sum of the weights in flight); a request's time is
    its weight * (V at its end - V at its start), so it costs the same however many others there
    are. All is kept in integers, and each end is given what the others have not earned: the shares
    of all that have ended plus what those in flight have earned are the busy time, always, and
    when none is in flight the shares sum to it exactly.

    Source of the clock: A. Demers, S. Keshav, S. Shenker, "Analysis and simulation of a fair
    queueing algorithm", SIGCOMM 1989, with processor sharing in place of bit-by-bit rounds.
    """

    __slots__ = ("_assigned_ns", "_busy", "_gpus", "_marks", "_now_ns", "_v", "_weights")

    def __init__(self, gpus: float = 1.0) -> None:
        self._gpus = _fixed(gpus)
        self._now_ns = 0
        self._busy = 0
        """GPU-ns with _GPU_BITS fraction bits: requests were in flight."""
        self._assigned_ns = 0
        self._v = 0
        """GPU-ns per weight, with _V_BITS fraction bits."""
        self._weights = 0
        self._marks = 0
        """Sum of weight * V at the start, over those in flight."""

    @property
    def busy_ns(self) -> int:
        """GPU-ns up to the last event: what is shared out, now and later."""
        return self._busy >> _GPU_BITS

    @property
    def assigned_ns(self) -> int:
        """GPU-ns of all requests that have ended."""
        return self._assigned_ns

    def start(self, weight: int, now_s: float) -> int:
        """A request begins; returns the mark that `end` wants back. `weight` is at least 1."""
        self._advance(now_s)
        self._weights += weight
        self._marks += weight * self._v
        return self._v

    def end(self, weight: int, mark: int, now_s: float) -> int:
        """The request is over; returns its GPU-ns."""
        self._advance(now_s)
        self._weights -= weight
        self._marks -= weight * mark
        if self._weights:
            others_ns = -(-(self._weights * self._v - self._marks) >> _V_BITS)
        else:
            # Nothing is in flight: what V has lost by rounding ends here, and V stays small.
            others_ns = self._v = self._marks = 0
        share_ns = (self._busy >> _GPU_BITS) - self._assigned_ns - others_ns
        self._assigned_ns += share_ns
        return share_ns

    def set_gpus(self, gpus: float, now_s: float) -> None:
        """The replica has another number of GPUs from now on."""
        self._advance(now_s)
        self._gpus = _fixed(gpus)

    def _advance(self, now_s: float) -> None:
        now_ns = int(now_s * _NS)
        passed_ns = now_ns - self._now_ns
        if passed_ns <= 0:
            return  # told a little late, or the clock fell back: that time is shared out already
        self._now_ns = now_ns
        if self._weights:
            passed = passed_ns * self._gpus
            self._busy += passed
            self._v += (passed << (_V_BITS - _GPU_BITS)) // self._weights


def _fixed(gpus: float) -> int:
    return max(1, round(gpus * (1 << _GPU_BITS)))


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """The amount in whole parts in proportion to the weights, which sum to it exactly.

    Largest remainder; ties go to the first. Weights are at least 0, one of them above it.
    """
    total = sum(weights)
    parts = [amount * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: -(amount * weights[i] % total))
    for index in order[: amount - sum(parts)]:
        parts[index] += 1
    return parts
