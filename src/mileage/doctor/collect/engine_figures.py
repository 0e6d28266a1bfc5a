"""Load, KV cache and token rates of an engine in a window, by the names of the alias table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from mileage.doctor.collect.facts_document import per_unit, whole
from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.engine_aliases import Figure, Table
from mileage.measure.metrics_page import Scheduler
from mileage.measure.page_expressions import Series

__all__ = [
    "COUNTERS",
    "OTHER_TABLES",
    "busy_all_along",
    "figure_signals",
    "in_system_change",
    "restarts",
]

COUNTERS: Final[tuple[Figure, ...]] = (
    "prompt_tokens_total",
    "output_tokens_total",
    "prefix_cache_query_tokens_total",
)
"""Figures that only grow while an engine lives: one that fell tells of a restart."""

OTHER_TABLES: Final[Mapping[str, Table]] = {
    "tgi": {
        "running": (Series("tgi_batch_current_size"),),
        "waiting": (Series("tgi_queue_size"),),
    },
    "dynamo": {"output_tokens_total": (Series("dynamo_frontend_output_tokens_total"),)},
}
"""Engines that the gateway does not know by kind, under the doctor's name for each."""

_RATES: Final[Mapping[str, Figure]] = {
    "prompt_tokens_per_s": "prompt_tokens_total",
    "output_tokens_per_s": "output_tokens_total",
    "preemptions_per_s": "preemptions_total",
}
_RATIO_MAX: Final = 1 + 1e-6


def figure_signals(window: PageWindow, table: Table) -> dict[str, Any]:
    """Signals by name; of several schedulers (data-parallel ranks, models) a list, by rank.

    A gauge is its mean over the pages; a counter's rate is what it grew by, by the time between the
    first page and the last. Of one page alone there are no rates, and counts are since the engine's
    start.
    """
    signals: dict[str, Any] = {}
    running = _gauge(window, table, "running")
    signals["requests_running"] = _means(running)
    if len(window.pages) > 1:
        signals["requests_running_max"] = per_unit([max(values) for values in running.values()])
    signals["requests_waiting"] = _means(_gauge(window, table, "waiting"))
    usage = _gauge(window, table, "kv_cache_usage_ratio", most=_RATIO_MAX)
    signals["kv_cache_usage_ratio"] = _means(usage, most=1.0)
    capacity = _gauge(window, table, "kv_tokens_max")
    signals["kv_cache_capacity_tokens"] = per_unit([values[-1] for values in capacity.values()])
    grown = {name: _increase(window, table, figure) for name, figure in _RATES.items()}
    if window.seconds is not None:
        for name, values in grown.items():
            signals[name] = per_unit([value / window.seconds for value in values.values()])
        prompt, output = grown["prompt_tokens_per_s"], grown["output_tokens_per_s"]
        if prompt and output:
            total = sum(prompt.values()) + sum(output.values())
            signals["total_tokens_per_s"] = total / window.seconds
    signals["preemptions_count"] = per_unit(list(grown["preemptions_per_s"].values()))
    return {**signals, **_prefix_cache(window, table)}


def in_system_change(window: PageWindow, table: Table) -> float | None:
    """How many more requests run or wait on the last page than on the first; None: not known."""
    change = 0.0
    figures: tuple[Figure, ...] = ("running", "waiting")
    for figure in figures:
        values = _gauge(window, table, figure).values()
        if not values or any(len(parts) != len(window.pages) for parts in values):
            return None
        change += sum(parts[-1] - parts[0] for parts in values)
    return change if len(window.pages) > 1 else None


def restarts(window: PageWindow, table: Table) -> int | None:
    """How often the engine began anew in the window; None where nothing tells."""
    counters = [window.chosen(table.get(figure, ())) for figure in COUNTERS]
    return window.restarts([counter for counter in counters if counter is not None])


def _prefix_cache(window: PageWindow, table: Table) -> dict[str, Any]:
    hits = _increase(window, table, "prefix_cache_hit_tokens_total")
    queries = _increase(window, table, "prefix_cache_query_tokens_total")
    looked_up, found = sum(queries.values()), sum(hits.values())
    if not queries or not hits or found > looked_up * _RATIO_MAX:
        if queries and hits:  # counted in different units, or at different times: neither is sure
            return {}
        ratios = _gauge(window, table, "prefix_cache_hit_ratio", most=_RATIO_MAX)
        return {"prefix_cache_hit_ratio": _means(ratios, most=1.0)}
    by_unit = [hits[who] / queries[who] for who in queries if who in hits and queries[who] > 0]
    whole_ratio = found / looked_up if looked_up > 0 else None
    return {
        "prefix_cache_queries_tokens": whole(looked_up),
        "prefix_cache_hits_tokens": whole(found),
        "prefix_cache_hit_ratio": per_unit(by_unit) if len(by_unit) > 1 else whole_ratio,
    }


def _gauge(
    window: PageWindow, table: Table, figure: Figure, most: float = inf
) -> dict[Scheduler, list[float]]:
    expression = window.chosen(table.get(figure, ()), most)
    return {} if expression is None else window.gauge(expression)


def _increase(window: PageWindow, table: Table, figure: Figure) -> dict[Scheduler, float]:
    expression = window.chosen(table.get(figure, ()))
    return {} if expression is None else window.increase(expression)


def _means(values: Mapping[Scheduler, Iterable[float]], most: float | None = None) -> Any:
    means = []
    for parts in values.values():
        known = list(parts)
        mean = sum(known) / len(known)
        means.append(mean if most is None else min(mean, most))
    return per_unit(means)


def busy_all_along(window: PageWindow, table: Table) -> bool:
    """Did it run a request on every page?"""
    running = _gauge(window, table, "running")
    pages = len(window.pages)
    return bool(running) and all(
        len(values) == pages and min(values) > 0 for values in running.values()
    )
