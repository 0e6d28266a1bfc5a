"""GpuMeter: shares one replica's busy GPU time out to the requests in flight, to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["GpuMeter", "split", "weight_of"]

_WEIGHT_SCALE = 16
_BITS = 32
"""Fraction bits of a GPU-nanosecond."""
_ONE_NS = 1 << _BITS
_NS = 1_000_000_000


def weight_of(work: float) -> int:
    """The weight of a request by its work (`mileage.policy.load.work_of`), which is not negative;
    at least 1."""
    return round(work * _WEIGHT_SCALE) or 1


class GpuMeter:
    """Processor sharing: of each moment every request in flight gets a part by its weight.

    A virtual clock advances by dt * gpus / (sum of the weights in flight); a request's time is its
    weight * (the clock at its end - the clock at its start), so it costs the same however many
    others there are. All is kept in integers, and what a division leaves over is carried to the
    next one: the shares of all that have ended, and what those in flight have earned, are the busy
    time, always. When none is in flight the shares sum to it exactly.

    Where other gateway workers have requests at the replica too, each has a meter of its own, and
    is told from time to time the weight of what the others have there (`set_others`); the others'
    part of each moment is not shared out. So the meters together share out about what there was,
    where each by itself would share out all of it.

    Source of the clock: A. Demers, S. Keshav, S. Shenker, "Analysis and simulation of a fair
    queueing algorithm", SIGCOMM 1989, with processor sharing in place of bit-by-bit rounds.
    """

    __slots__ = ("_clock", "_gpus", "_now_ns", "_others", "_owed", "_undivided", "_weights")

    def __init__(self, gpus: float = 1.0) -> None:
        self._gpus = _fixed(gpus)
        self._now_ns = 0
        self._weights = 0
        self._others = 0
        self._clock = 0
        """GPU-ns per weight, with _BITS fraction bits."""
        self._undivided = 0
        """Of the time so far, in the same unit: less than one step of the clock is worth."""
        self._owed = _ONE_NS // 2
        """Of the shares so far: less than a nanosecond, which the next one is given. It begins with
        a half, so that their sum is rounded to the nearest."""

    def start(self, weight: int, now_s: float) -> int:
        """Requests of so much weight, at least 1, begin; returns the mark that `end` wants back."""
        now_ns = int(now_s * _NS)
        passed_ns = now_ns - self._now_ns
        weights = self._weights
        self._weights = weights + weight
        if passed_ns > 0:  # else it was told a little late: that time is shared out already
            self._now_ns = now_ns
            if weights:
                passed = passed_ns * self._gpus + self._undivided
                steps, self._undivided = divmod(passed, weights + self._others)
                self._clock += steps
        return self._clock

    def end(self, weight: int, mark: int, now_s: float) -> int:
        """The request is over; returns its GPU-ns."""
        clock = self.start(-weight, now_s)
        earned = weight * (clock - mark) + self._owed
        if not self._weights:
            # Nothing is in flight: what was not divided ends here, and the clock stays small.
            earned += self._undivided
            self._undivided = self._clock = 0
        self._owed = earned % _ONE_NS
        return earned >> _BITS

    @property
    def weight(self) -> int:
        """Of all requests that are in flight now."""
        return self._weights

    def set_others(self, weight: int, now_s: float) -> None:
        """From now on others have requests of so much weight there, at least 0."""
        if weight != self._others:
            self.start(0, now_s)
            self._others = weight

    def set_gpus(self, gpus: float, now_s: float) -> None:
        """The replica has another number of GPUs from now on."""
        self.start(0, now_s)
        self._gpus = _fixed(gpus)


def _fixed(gpus: float) -> int:
    return max(1, round(gpus * _ONE_NS))


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
