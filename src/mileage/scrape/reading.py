"""Reading: what one scraped page says about a replica, as a dated ReplicaView."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mileage.core.replica import ReplicaView
from mileage.measure.engine_aliases import ALIASES, NAMES, RATIOS, Figure, KnownKind, Table, detect
from mileage.measure.exposition import Exposition, parse
from mileage.measure.iteration_records import iteration_records, record_samples
from mileage.measure.metrics_page import Page, Values, possible
from mileage.measure.page_expressions import Expression, finder

__all__ = ["Reading", "read", "view"]

SAMPLES_MAX = 20_000
"""Series of the alias table on one page; a page with more describes no replica."""
REQUESTS_MAX = 1e9
RATIO_MAX = 1 + 1e-6
"""A full cache may read a rounding error above 1."""
_REQUESTS: tuple[Figure, ...] = ("running", "waiting", "running_max")
_WHOLE: tuple[Figure, ...] = (*_REQUESTS, "kv_tokens_max")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A view and how it came about.

    `kind` is what the page looks like, None where that cannot be told; `figures`, how many of the
    view's figures are known; `truncated`, that the page was too large to be read (then none is).
    """

    view: ReplicaView
    kind: KnownKind | None
    figures: int
    lines_bad: int = 0
    truncated: bool = False


def view(kind: str, body: bytes, replica: str, now_s: float) -> ReplicaView:
    """The view alone: see `read`."""
    return read(kind, body, replica, now_s).view


def read(kind: str, body: bytes, replica: str, now_s: float) -> Reading:
    """Read a page of an engine of `kind`; of any other kind than the table's, it is detected.

    `body` is Prometheus text, OpenMetrics text or trtllm-serve's JSON. Over data-parallel engines
    and models, counts add up; a ratio is the mean, weighted by KV capacity where that is known for
    each. A figure is None where it is missing or any part of it cannot be true. Never raises.
    """
    records = iteration_records(body)
    if records is not None:
        exposition = Exposition(samples=record_samples(records, NAMES), helps={})
    else:
        exposition = parse(body, NAMES, samples_max=SAMPLES_MAX)
    page = Page(exposition)
    seen: KnownKind | None = "trtllm" if records is not None else detect(page)
    known = cast("KnownKind | None", kind if kind in ALIASES else seen)
    figures: dict[str, float] = {}
    if known is not None and not exposition.truncated:
        figures = _figures(ALIASES[known], page)
    fields: dict[str, Any] = {
        name: int(value) if name in _WHOLE else value for name, value in figures.items()
    }
    return Reading(
        view=ReplicaView(replica=replica, observed_s=now_s, **fields),
        kind=seen,
        figures=len(figures),
        lines_bad=exposition.lines_bad,
        truncated=exposition.truncated,
    )


def _figures(table: Table, page: Page) -> dict[str, float]:
    capacity = _first(table.get("kv_tokens_max", ()), page)
    figures: dict[str, float] = {}
    for figure, expressions in table.items():
        value = _figure(figure, expressions, page, capacity)
        if value is not None:
            figures[figure] = value
    usage = _first(table.get("kv_cache_usage_ratio", ()), page)
    if len(usage) > 1 and None in map(finder(capacity), usage):
        figures.pop("kv_tokens_max", None)  # known for some schedulers only: not the whole
    return figures


def _figure(
    figure: Figure, expressions: tuple[Expression, ...], page: Page, capacity: Values
) -> float | None:
    """The value of the first expression that gives a possible one."""
    for expression in expressions:
        values = expression.read(page)
        known = [value for value in values.values() if value is not None]
        if not known or len(known) < len(values):
            continue
        value = _mean(values, capacity) if figure in RATIOS else possible(sum(known))
        if value is None or (figure in _REQUESTS and value > REQUESTS_MAX):
            continue
        if figure in _WHOLE and not value.is_integer():
            continue
        return value
    return None


def _mean(values: Values, capacity: Values) -> float | None:
    """Mean of ratios, weighted where each one's weight is known; None if one is above 1."""
    ratios = [value for value in values.values() if value is not None]
    if max(ratios) > RATIO_MAX:
        return None
    weights = [weight for weight in map(finder(capacity), values) if weight is not None]
    if len(weights) < len(ratios) or sum(weights) <= 0:
        weights = [1.0] * len(ratios)
    pairs = zip(ratios, weights, strict=True)
    return min(1.0, sum(ratio * weight for ratio, weight in pairs) / sum(weights))


def _first(expressions: tuple[Expression, ...], page: Page) -> Values:
    """Values per scheduler of the first expression whose series are there."""
    return next((values for e in expressions if (values := e.read(page))), {})
