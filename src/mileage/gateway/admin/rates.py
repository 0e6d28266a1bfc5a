"""Rates and quantiles over the last seconds, from the cumulative reports of several workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from mileage.gateway.messages import Report
from mileage.measure.metrics import FamilySnapshot

__all__ = ["MET_RATIO", "QUANTILES", "Key", "WorkerRates"]

Key: TypeAlias = tuple[str, str | None]
"""A series: its name and its label value, or None where it has no label."""


RATE_WINDOW_S = 5.0
QUANTILE_WINDOW_S = 10.0
REPORT_AGE_MAX_S = 5.0
"""A worker that has not reported for longer counts for nothing until it does."""
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))

_SLACK_S = 0.5
"""Reports come about once a second: one that is a little older than the window still opens it."""

_REQUESTS = "mileage_requests_total"
_REJECTED = "mileage_requests_rejected_total"
_MERGED = "mileage_requests_merged_total"
_FAILURES = "mileage_upstream_failures_total"
_OURS = frozenset({_REQUESTS, _REJECTED, _MERGED, _FAILURES})
"""Counters of which no series means none: an engine may never tell tokens or cache hits."""

_COUNTERS: dict[str, tuple[str, str | None]] = {
    _REQUESTS: ("requests_per_s", "outcome"),
    "mileage_prompt_tokens_total": ("prompt_tokens_per_s", None),
    "mileage_cached_tokens_total": ("cached_tokens_per_s", None),
    "mileage_output_tokens_total": ("output_tokens_per_s", None),
    _FAILURES: ("upstream_failures_per_s", "replica"),
    _REJECTED: ("rejected_per_s", "reason"),
    _MERGED: ("merged_per_s", "kind"),
}
"""Family -> the series' name and the label that it is split by."""
_HISTOGRAMS = {
    "mileage_time_to_first_token_seconds": "ttft_s",
    "mileage_inter_token_latency_seconds": "itl_s",
}
_TARGETS = "mileage_slo_requests_total"
MET_RATIO = "targets_met_ratio"
"""A share, made of two counts like a quantile of many: met, and missed."""


class _Totals(msgspec.Struct, frozen=True):
    """What one report had counted, without the labels that no series is split by."""

    at_s: float
    numbers: dict[Key, float]
    counts: dict[Key, list[int]]


class WorkerRates:
    """Differences of each worker's totals over the time between its own reports, added up.

    The reports' own times are used because reports and samples drift against each other: by the
    sampler's clock a second would hold no report, and the next one two. A worker's first report is
    its baseline, so nothing is counted that happened before it was seen.
    """

    def __init__(self) -> None:
        self.bounds: dict[str, tuple[float, ...]] = {}
        """Histogram bounds by series name."""
        self._workers: dict[int, deque[_Totals]] = {}
        self._now_s = 0.0

    def update(self, reports: Sequence[Report], now_s: float) -> dict[Key, list[int]]:
        """Take the latest reports; return what the counts gained since the last update."""
        self._now_s = now_s
        for pid in self._workers.keys() - {report.pid for report in reports}:
            del self._workers[pid]
        gained: dict[Key, list[int]] = {}
        for report in reports:
            history = self._workers.setdefault(report.pid, deque())
            if history and history[-1].at_s >= report.at_s:
                continue
            totals = self._totals(report)
            if history and _fell(history[-1], totals):
                history.clear()  # another process with the pid of one that died unseen
            if history:
                _add(gained, _difference(history[-1].counts, totals.counts))
            history.append(totals)
            oldest_s = report.at_s - QUANTILE_WINDOW_S - _SLACK_S
            while len(history) > 2 and history[0].at_s < oldest_s:
                history.popleft()
        return gained

    @staticmethod
    def is_fresh(report: Report, now_s: float) -> bool:
        """The report is recent enough to speak for its worker."""
        return now_s - report.at_s <= REPORT_AGE_MAX_S

    def rates(self) -> dict[Key, float]:
        """Per second, by series and label; what no worker has ever counted is absent."""
        found: dict[Key, float] = {}
        for history in self._fresh():
            newest = history[-1]
            oldest = _open(history, RATE_WINDOW_S)
            elapsed_s = newest.at_s - oldest.at_s
            for key, total in newest.numbers.items():
                gained = max(0.0, total - oldest.numbers.get(key, 0.0))
                found[key] = found.get(key, 0.0) + gained / elapsed_s
        return found

    def window_counts(self) -> dict[Key, list[int]]:
        """Counts of the last ten seconds, not cumulative, by series: of histograms by bucket, of
        `MET_RATIO` met and missed."""
        found: dict[Key, list[int]] = {}
        for history in self._fresh():
            oldest = _open(history, QUANTILE_WINDOW_S)
            _add(found, _difference(oldest.counts, history[-1].counts))
        return found

    def _fresh(self) -> list[deque[_Totals]]:
        return [
            history
            for history in self._workers.values()
            if len(history) > 1 and self._now_s - history[-1].at_s <= REPORT_AGE_MAX_S
        ]

    def _totals(self, report: Report) -> _Totals:
        numbers: dict[Key, float] = {}
        counts: dict[Key, list[int]] = {}
        for family in report.families:
            if family.name in _COUNTERS:
                _count(numbers, family)
            elif family.name in _HISTOGRAMS:
                name = _HISTOGRAMS[family.name]
                self.bounds[name] = family.bounds
                counts[name, None] = [0] * (len(family.bounds) + 1)
                for value in family.histograms.values():
                    _add(counts, {(name, None): value.counts})
            elif family.name == _TARGETS:
                _count_met(counts, family)
        return _Totals(report.at_s, numbers, counts)


def _count(numbers: dict[Key, float], family: FamilySnapshot) -> None:
    name, label = _COUNTERS[family.name]
    if not family.numbers and family.name not in _OURS:
        return
    numbers[name, None] = sum(family.numbers.values())
    if label in family.labels:
        position = family.labels.index(label)
        for labels, number in family.numbers.items():
            key = (name, labels[position])
            numbers[key] = numbers.get(key, 0.0) + number


def _count_met(counts: dict[Key, list[int]], family: FamilySnapshot) -> None:
    target_at, met_at = family.labels.index("target"), family.labels.index("met")
    for labels, number in family.numbers.items():
        met = labels[met_at] == "yes"
        pair = [int(number), 0] if met else [0, int(number)]
        _add(counts, {(MET_RATIO, labels[target_at]): pair})


def _open(history: deque[_Totals], window_s: float) -> _Totals:
    """The oldest totals inside the window; the last but one where reports come more seldom."""
    start_s = history[-1].at_s - window_s - _SLACK_S
    inside = next(totals for totals in history if totals.at_s >= start_s)
    return inside if inside is not history[-1] else history[-2]


def _fell(before: _Totals, after: _Totals) -> bool:
    return any(after.numbers.get(key, 0.0) < number for key, number in before.numbers.items())


def _difference(
    before: Mapping[Key, list[int]], after: Mapping[Key, list[int]]
) -> dict[Key, list[int]]:
    gained: dict[Key, list[int]] = {}
    for name, counts in after.items():
        base = before.get(name) or [0] * len(counts)
        gained[name] = [max(0, a - b) for a, b in zip(counts, base, strict=True)]
    return gained


def _add(totals: dict[Key, list[int]], counts: Mapping[Key, list[int]]) -> None:
    for name, more in counts.items():
        known = totals.get(name)
        totals[name] = (
            list(more) if known is None else [a + b for a, b in zip(known, more, strict=True)]
        )
