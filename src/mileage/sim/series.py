"""Series: how a fleet fared over time, in a bounded number of bins."""

from __future__ import annotations

import math

__all__ = ["SIGNALS", "Series"]

SIGNALS = ("running", "waiting", "held", "limit", "kv_usage_ratio", "busy_ratio")
"""What is sampled: requests that run in the engines, wait in them, and are held before them; the
sum of the limits; the mean use of KV blocks; the mean share of time with steps in progress."""


class Series:
    """Means and peaks of samples per bin of time.

    Past `bins_max` bins their width doubles, and each two become one: memory and the size of a
    report do not depend on how long it all took.
    """

    def __init__(self, *, start_s: float, width_s: float, bins_max: int = 1024) -> None:
        assert width_s > 0.0
        assert bins_max >= 2
        self.start_s, self.width_s, self._bins_max = start_s, width_s, bins_max
        self.samples: list[int] = []
        self._sums: list[list[float]] = [[] for _ in SIGNALS]
        self._peaks: list[list[float]] = [[] for _ in SIGNALS]

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, time_s: float, values: tuple[float, ...]) -> None:
        """One sample of all signals, at or after `start_s`."""
        index = int((time_s - self.start_s) / self.width_s)
        while index >= self._bins_max:
            self._halve()
            index = int((time_s - self.start_s) / self.width_s)
        missing = index + 1 - len(self.samples)
        if missing > 0:
            self.samples += [0] * missing
            for sums, peaks in zip(self._sums, self._peaks, strict=True):
                sums += [0.0] * missing
                peaks += [0.0] * missing
        self.samples[index] += 1
        for sums, peaks, value in zip(self._sums, self._peaks, values, strict=True):
            sums[index] += value
            if value > peaks[index]:
                peaks[index] = value

    def means(self, signal: str) -> list[float]:
        """Mean of a signal in each bin; NaN in those without a sample."""
        sums = self._sums[SIGNALS.index(signal)]
        return [s / n if n else math.nan for s, n in zip(sums, self.samples, strict=True)]

    def peaks(self, signal: str) -> list[float]:
        """Highest sample of a signal in each bin; 0 in those without one."""
        return list(self._peaks[SIGNALS.index(signal)])

    def mean(self, signal: str) -> float | None:
        """Mean over all samples; None without any."""
        count = sum(self.samples)
        return sum(self._sums[SIGNALS.index(signal)]) / count if count else None

    def peak(self, signal: str) -> float | None:
        """Highest of all samples; None without any."""
        return max(self._peaks[SIGNALS.index(signal)], default=None)

    def _halve(self) -> None:
        self.width_s *= 2
        if len(self.samples) % 2:
            self.samples.append(0)
            for bins in (*self._sums, *self._peaks):
                bins.append(0.0)
        self.samples = [int(a + b) for a, b in _pairs(self.samples)]
        self._sums = [[a + b for a, b in _pairs(bins)] for bins in self._sums]
        self._peaks = [[max(a, b) for a, b in _pairs(bins)] for bins in self._peaks]


def _pairs(values: list[float] | list[int]) -> zip[tuple[float, float]]:
    return zip(values[::2], values[1::2], strict=True)
