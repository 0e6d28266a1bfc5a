"""Metric families: counters, gauges and histograms with bounded labels, cheap enough per request.

A family is a name, a help text and values by label tuple. Exposition is someone else's work: a
family gives a `FamilySnapshot`, which any process can merge with others and print.
prometheus_client does the printing; its own counters take a lock and a label look-up per increment,
which is too much on the path of every request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

import msgspec

__all__ = [
    "Counter",
    "Families",
    "FamilySnapshot",
    "Gauge",
    "Histogram",
    "HistogramSeries",
    "HistogramValue",
    "merge",
    "quantile",
]

OTHER = "other"
"""Label value that stands for every series past a family's bound."""


class HistogramValue(msgspec.Struct):
    """Counts per bucket (not cumulative; the last one is above the highest bound) and their sum."""

    counts: list[int]
    sum: float = 0.0

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


class FamilySnapshot(msgspec.Struct, kw_only=True):
    """A family's values at one moment; `numbers` for counters and gauges, else `histograms`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    numbers: dict[tuple[str, ...], float] = {}
    histograms: dict[tuple[str, ...], HistogramValue] = {}


class _Family:
    """Name, help, label names and the bound on the number of series."""

    __slots__ = ("help", "labels", "name", "series_max")

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...] = (), *, series_max: int = 1000
    ) -> None:
        self.name, self.help, self.labels, self.series_max = name, help, labels, series_max

    def _overflow(self) -> tuple[str, ...]:
        return (OTHER,) * len(self.labels)


class _Numbers(_Family):
    """A family of one number per series."""

    __slots__ = ("values",)
    kind: Literal["counter", "gauge"]

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...] = (), *, series_max: int = 1000
    ) -> None:
        super().__init__(name, help, labels, series_max=series_max)
        self.values: dict[tuple[str, ...], float] = {}

    def snapshot(self) -> FamilySnapshot:
        """The values now."""
        return FamilySnapshot(
            name=self.name,
            kind=self.kind,
            help=self.help,
            labels=self.labels,
            numbers=dict(self.values),
        )


class Counter(_Numbers):
    """A total that only grows."""

    __slots__ = ()
    kind = "counter"

    def add(self, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        """Add to the series of these label values (in the order of `labels`)."""
        values = self.values
        try:
            values[labels] += amount
        except KeyError:
            if len(values) >= self.series_max:
                labels = self._overflow()
            values[labels] = values.get(labels, 0) + amount


class Gauge(_Numbers):
    """A value that goes up and down; merged over processes by adding."""

    __slots__ = ()
    kind = "gauge"

    def set(self, value: float, labels: tuple[str, ...] = ()) -> None:
        """Set the series of these label values."""
        if labels not in self.values and len(self.values) >= self.series_max:
            labels = self._overflow()
        self.values[labels] = value


class HistogramSeries:
    """The observations under one set of label values."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def observe(self, value: float, count: int = 1) -> None:
        """Count `count` observations of `value`."""
        self.counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count

    def value(self) -> HistogramValue:
        """What was observed so far."""
        return HistogramValue(list(self.counts), self.sum)


class Histogram(_Family):
    """Observations counted in buckets with fixed upper bounds (inclusive)."""

    __slots__ = ("bounds", "values")

    def __init__(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...] = (),
        *,
        bounds: tuple[float, ...],
        series_max: int = 1000,
    ) -> None:
        super().__init__(name, help, labels, series_max=series_max)
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"{name}: bounds must increase")
        self.bounds = bounds
        self.values: dict[tuple[str, ...], HistogramSeries] = {}

    def observe(self, value: float, labels: tuple[str, ...] = (), count: int = 1) -> None:
        """Count `count` observations of `value`."""
        (self.values.get(labels) or self.series(labels)).observe(value, count)

    def series(self, labels: tuple[str, ...] = ()) -> HistogramSeries:
        """The series of these label values, for whoever observes many times."""
        found = self.values.get(labels)
        if found is None:
            if len(self.values) >= self.series_max:
                labels = self._overflow()
            found = self.values.setdefault(labels, HistogramSeries(self.bounds))
        return found

    def snapshot(self) -> FamilySnapshot:
        """The values now."""
        return FamilySnapshot(
            name=self.name,
            kind="histogram",
            help=self.help,
            labels=self.labels,
            bounds=self.bounds,
            histograms={labels: series.value() for labels, series in self.values.items()},
        )


class Families:
    """A group of families: its attributes, and the families of the groups among them."""

    def families(self) -> list[Counter | Gauge | Histogram]:
        """All of them, in the order in which they were made."""
        found: list[Counter | Gauge | Histogram] = []
        for value in vars(self).values():
            if isinstance(value, Counter | Gauge | Histogram):
                found.append(value)
            elif isinstance(value, Families):
                found += value.families()
        return found

    def snapshot(self) -> list[FamilySnapshot]:
        """The values of all of them now."""
        return [family.snapshot() for family in self.families()]


def merge(snapshots: Iterable[FamilySnapshot]) -> list[FamilySnapshot]:
    """Add the families of several processes by name and labels, in order of first appearance.

    Raises ValueError where two families of one name have other labels or bounds.
    """
    merged: dict[str, FamilySnapshot] = {}
    for family in snapshots:
        known = merged.get(family.name)
        if known is None:
            merged[family.name] = known = FamilySnapshot(
                name=family.name,
                kind=family.kind,
                help=family.help,
                labels=family.labels,
                bounds=family.bounds,
                numbers={},
                histograms={},
            )
        if (known.kind, known.labels, known.bounds) != (family.kind, family.labels, family.bounds):
            raise ValueError(
                f"{family.name}: families of one name differ in kind, labels or bounds"
            )
        for labels, number in family.numbers.items():
            known.numbers[labels] = known.numbers.get(labels, 0) + number
        for labels, value in family.histograms.items():
            total = known.histograms.setdefault(labels, HistogramValue([0] * len(value.counts)))
            total.counts = [a + b for a, b in zip(total.counts, value.counts, strict=True)]
            total.sum += value.sum
    return list(merged.values())


def quantile(bounds: tuple[float, ...], counts: list[int], q: float) -> float | None:
    """Quantile `q` (0..1) of bucketed observations, linear inside a bucket; None without any.

    Above the highest bound the highest bound is returned: the true value is at least that.
    """
    total = sum(counts)
    if total == 0:
        return None
    rank = q * total
    seen = 0.0
    for index, count in enumerate(counts):
        if count and seen + count >= rank:
            if index == len(bounds):
                return bounds[-1]
            lower = bounds[index - 1] if index else 0.0
            return lower + (bounds[index] - lower) * max(0.0, rank - seen) / count
        seen += count
    return bounds[-1]
