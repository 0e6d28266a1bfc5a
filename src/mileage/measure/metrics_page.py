"""Page: the samples of one scrape by name, and the value that each scheduler on it reports.

A page may describe several schedulers: data-parallel engines, models, attention ranks. A value that
is there but cannot be true (NaN, negative, absurdly large) is None, and so is what it is part of: a
sum over the rest would be a lie about the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from mileage.measure.exposition import Exposition, Sample

__all__ = ["RANK_LABELS", "Page", "Scheduler", "Values", "fold", "normal_name", "possible"]

RANK_LABELS = ("engine", "dp_rank")
"""Labels that number data-parallel schedulers: vLLM's and SGLang's."""
VALUE_MAX = 1e18
"""A larger figure is an error: at a million tokens a second it is reached after 30,000 years."""
_SOURCE = "cache_source"


class Scheduler(NamedTuple):
    """Whose value it is: its data-parallel rank ('' where none) and what else tells it apart."""

    rank: str
    rest: tuple[tuple[str, str], ...]


Values: TypeAlias = dict[Scheduler, float | None]


class Page:
    """One scrape, indexed by name. Of a series given twice the later counts."""

    def __init__(self, exposition: Exposition) -> None:
        self._series: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {}
        for sample in exposition.samples:
            series = self._series.setdefault(normal_name(sample.name), {})
            series[tuple(sorted(sample.labels.items()))] = sample
        self._helps = {normal_name(name): text for name, text in exposition.helps.items()}

    def names(self) -> Collection[str]:
        """Normal names of all series."""
        return self._series.keys()

    def samples(self, name: str) -> Collection[Sample]:
        """All series of a name."""
        return self._series.get(normal_name(name), {}).values()

    def help(self, name: str) -> str:
        """Its HELP text, '' where there is none; OpenMetrics names the family without _total."""
        name = normal_name(name)
        return self._helps.get(name) or self._helps.get(name.removesuffix("_total"), "")


def normal_name(name: str) -> str:
    """`vllm:x` and `vllm_x` are one name: relays that cannot have colons rewrite them."""
    return name.replace(":", "_")


def possible(value: float | None) -> float | None:
    """The value if it can be a count, a size or a share; else None (also for NaN)."""
    return value if value is not None and 0 <= value <= VALUE_MAX else None


def fold(series: Iterable[tuple[Mapping[str, str], float | None]]) -> Values:
    """One value per scheduler, from the labels and values of a name's series.

    Tensor- and pipeline-parallel ranks report the same requests, and SGLang adds series by priority
    to the one of all: there the largest counts. Its cached tokens come by source, to be added up; a
    source named total repeats the others.
    """
    parts: dict[Scheduler, dict[str, float | None]] = {}
    for labels, value in series:
        rank = next((labels[key] for key in RANK_LABELS if key in labels), "")
        rest = tuple(sorted(item for item in labels.items() if not _is_same_scheduler(item[0])))
        sources = parts.setdefault(Scheduler(rank, rest), {})
        source = labels.get(_SOURCE, "")
        before = sources.get(source, 0.0)
        sources[source] = None if value is None or before is None else max(before, value)
    folded: Values = {}
    for who, sources in parts.items():
        if len(sources) > 1:
            sources.pop("total", None)
        known = [value for value in sources.values() if value is not None]
        folded[who] = sum(known) if len(known) == len(sources) else None
    return folded


def _is_same_scheduler(label: str) -> bool:
    """Whether series that differ in this label alone belong to one scheduler."""
    return label in RANK_LABELS or label.endswith("_rank") or label in (_SOURCE, "priority")
