"""Exposition: metric families as Prometheus text or OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import exposition as prometheus_text
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_text
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mileage.measure.metrics import FamilySnapshot, HistogramValue

__all__ = ["CONTENT_TYPE_OPENMETRICS", "CONTENT_TYPE_TEXT", "render", "wants_openmetrics"]

CONTENT_TYPE_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CONTENT_TYPE_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_CHARACTERS_MAX = 256


def wants_openmetrics(accept: str | None) -> bool:
    """Whether an Accept header asks for OpenMetrics, in any version, before plain text."""
    for offer in (accept or "").split(","):
        media_type = offer.partition(";")[0].strip().lower()
        if media_type == "application/openmetrics-text":
            return True
        if media_type == "text/plain":
            return False
    return False


def render(families: Iterable[FamilySnapshot], *, openmetrics: bool = False) -> bytes:
    """Print families in one of the two text formats; of families with one name the first counts.

    A label value loses what is no Unicode text and what is past 256 characters; series that
    become equal by this are added up, because a scrape with a duplicate is refused whole.
    """
    collector = _Collector(families)
    if openmetrics:
        text: bytes = openmetrics_text.generate_latest(collector)  # type: ignore[no-untyped-call]
        return text
    return prometheus_text.generate_latest(collector)


class _Collector(Collector):
    """Families in the form that prometheus_client prints."""

    def __init__(self, families: Iterable[FamilySnapshot]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        seen: set[str] = set()
        for family in self._families:
            if family.name not in seen:
                seen.add(family.name)
                yield _metric(family)


def _metric(family: FamilySnapshot) -> Metric:
    if family.kind == "histogram":
        return _histogram(family)
    # The counter's suffix belongs to its samples; the library adds it where the format wants it.
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.help, family.kind)
    sample = f"{name}_total" if family.kind == "counter" else name
    totals: dict[tuple[str, ...], float] = {}
    for labels, number in family.numbers.items():
        cleaned = _clean(labels)
        totals[cleaned] = totals.get(cleaned, 0) + number
    for labels, number in totals.items():
        metric.add_sample(sample, dict(zip(family.labels, labels, strict=True)), number)
    return metric


def _histogram(family: FamilySnapshot) -> Metric:
    metric = Metric(family.name, family.help, "histogram")
    totals: dict[tuple[str, ...], HistogramValue] = {}
    for labels, value in family.histograms.items():
        total = totals.setdefault(_clean(labels), HistogramValue([0] * len(value.counts)))
        total.counts = [a + b for a, b in zip(total.counts, value.counts, strict=True)]
        total.sum += value.sum
    limits = [_number(bound) for bound in (*family.bounds, float("inf"))]
    for labels, value in totals.items():
        pairs = dict(zip(family.labels, labels, strict=True))
        seen = 0
        for limit, count in zip(limits, value.counts, strict=True):
            seen += count
            metric.add_sample(f"{family.name}_bucket", {**pairs, "le": limit}, seen)
        metric.add_sample(f"{family.name}_count", pairs, seen)
        metric.add_sample(f"{family.name}_sum", pairs, value.sum)
    return metric


def _clean(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        label[:_LABEL_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8") for label in labels
    )


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text
