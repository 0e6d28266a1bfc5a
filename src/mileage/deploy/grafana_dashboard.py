"""The Grafana dashboard: money, targets, engines and the machine under them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["dashboard_json"]

SCHEMA_VERSION: Final = 39
_WIDTH: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_MODEL: Final = 'model=~"$model"'
_TENANT: Final = 'model=~"$model",tenant=~"$tenant"'
_REPLICA: Final = 'replica=~"$replica"'
_RATE: Final = "[$__rate_interval]"


class _Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel: its title, Grafana's unit, and its series as (expression, legend)."""

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]
    about: str
    kind: str = "timeseries"
    stacked: bool = False
    width: int = 8


def dashboard_json() -> bytes:
    """The dashboard as Grafana imports it; its data source is chosen there."""
    return msgspec.json.format(msgspec.json.encode(_dashboard()), indent=2) + b"\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "mileage",
        "title": "Mileage: what each GPU-dollar yields",
        "tags": ["mileage", "llm", "gpu", "cost"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_placed()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }
    for name, label, metric in (
        ("model", "Model", "mileage_requests_total"),
        ("tenant", "Tenant", "mileage_requests_total"),
        ("replica", "Replica", "mileage_replica_up"),
    ):
        query = f"label_values({metric}, {name})"
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "hide": 0,
        }


def _placed() -> Iterator[dict[str, Any]]:
    """Panels in rows of 24 columns, with ids that stay as long as the order does."""
    y = number = 0
    for title, panels in _ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        y += 1
        x = 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            number += 1
            yield _panel(panel, number, x, y)
            x += panel.width
        y += _HEIGHT


def _panel(panel: _Panel, number: int, x: int, y: int) -> dict[str, Any]:
    custom: dict[str, Any] = {
        "fillOpacity": 25 if panel.stacked else 8,
        "lineWidth": 1,
        "showPoints": "never",
    }
    if panel.stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
        "targets": [
            {"refId": chr(65 + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.series)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }
    if panel.kind == "stat":
        del found["fieldConfig"]["defaults"]["custom"]
        found["options"] = {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return found


def _quantile(family: str, ratio: float) -> str:
    buckets = f"sum by (le) (rate({family}_bucket{{{_MODEL}}}{_RATE}))"
    return f"histogram_quantile({ratio:g}, {buckets})"


def _tokens(kind: str) -> str:
    return f"sum(rate(mileage_{kind}_tokens_total{{{_TENANT}}}{_RATE}))"


_MONEY: Final = (
    _Panel(
        title="Spend per hour",
        unit="currencyUSD",
        kind="stat",
        width=6,
        about="At the rate of the last hour. Empty without a price.",
        series=((f"sum(mileage:cost_usd:per_hour{{{_TENANT}}})", ""),),
    ),
    _Panel(
        title="USD per million output tokens",
        unit="currencyUSD",
        kind="stat",
        width=6,
        about="All that requests cost, over the tokens of their answers.",
        series=((f"mileage:cost_usd:per_million_output_tokens{{{_MODEL}}}", "{{model}}"),),
    ),
    _Panel(
        title="Output tokens per GPU-second",
        unit="short",
        kind="stat",
        width=6,
        about="Of the GPU time that requests had.",
        series=((f"mileage:output_tokens:per_gpu_second{{{_MODEL}}}", "{{model}}"),),
    ),
    _Panel(
        title="Idle share",
        unit="percentunit",
        kind="stat",
        width=6,
        about="Of the GPU time that there was in the last hour.",
        series=((f"mileage:idle_gpu:ratio_rate1h{{{_REPLICA}}}", "{{replica}}"),),
    ),
    _Panel(
        title="Spend by tenant",
        unit="currencyUSD",
        stacked=True,
        width=12,
        about="USD per hour at the rate of the last hour.",
        series=((f"sum by (tenant) (mileage:cost_usd:per_hour{{{_TENANT}}})", "{{tenant}}"),),
    ),
    _Panel(
        title="Where the GPU time went",
        unit="short",
        stacked=True,
        width=12,
        about="GPUs: those at work for prompts and for answers, and those that were idle.",
        series=(
            (
                f"sum by (phase) (rate(mileage_attributed_gpu_seconds_total{{{_TENANT}}}[1h]))",
                "{{phase}}",
            ),
            (f"sum(rate(mileage_idle_gpu_seconds_total{{{_REPLICA}}}[1h]))", "idle"),
        ),
    ),
    _Panel(
        title="Budgets: left of this period",
        unit="percentunit",
        width=12,
        about="Share of each budget that is left; requests are refused at 0.",
        series=(
            (
                'mileage_budget_left{tenant=~"$tenant"} / mileage_budget_amount',
                "{{tenant}} {{unit}} per {{period}}",
            ),
        ),
    ),
    _Panel(
        title="Prompt tokens out of the prefix cache",
        unit="percentunit",
        width=12,
        about="Each of them is a token that was not computed again.",
        series=((f"{_tokens('cached')} / ({_tokens('prompt')} > 0)", "cached"),),
    ),
)
_TARGETS: Final = (
    _Panel(
        title="Streams that missed their target",
        unit="percentunit",
        about="Over the last hour; alerts follow from it.",
        series=((f"mileage:targets_missed:ratio_rate1h{{{_MODEL}}}", "{{model}} {{target}}"),),
    ),
    _Panel(
        title="Time to first token",
        unit="s",
        about="From receipt of a request's last byte.",
        series=tuple(
            (_quantile("mileage_time_to_first_token_seconds", ratio), f"p{100 * ratio:g}")
            for ratio in (0.5, 0.95, 0.99)
        ),
    ),
    _Panel(
        title="Gaps between tokens",
        unit="s",
        about="Of all streams together.",
        series=tuple(
            (_quantile("mileage_inter_token_latency_seconds", ratio), f"p{100 * ratio:g}")
            for ratio in (0.5, 0.95, 0.99)
        ),
    ),
    _Panel(
        title="Requests by how they ended",
        unit="reqps",
        stacked=True,
        about="rejected: the gateway refused them; failed: an engine or the way to it broke.",
        series=(
            (f"sum by (outcome) (rate(mileage_requests_total{{{_TENANT}}}{_RATE}))", "{{outcome}}"),
        ),
    ),
    _Panel(
        title="Time in the gateway's queue",
        unit="s",
        about="From receipt to dispatch.",
        series=tuple(
            (_quantile("mileage_queue_time_seconds", ratio), f"p{100 * ratio:g}")
            for ratio in (0.5, 0.99)
        ),
    ),
    _Panel(
        title="Failures of engines",
        unit="reqps",
        about="Attempts that failed, also where another replica then answered.",
        series=(
            (
                "sum by (replica, kind) "
                f"(rate(mileage_upstream_failures_total{{{_REPLICA}}}{_RATE}))",
                "{{replica}} {{kind}}",
            ),
        ),
    ),
)
_ENGINES: Final = (
    _Panel(
        title="Running, and the limit",
        unit="short",
        about="What each engine runs at once, and how many it may.",
        series=(
            (f"mileage_replica_running{{{_REPLICA}}}", "{{replica}} running"),
            (f"mileage_replica_limit{{{_REPLICA}}}", "{{replica}} limit"),
        ),
    ),
    _Panel(
        title="Waiting",
        unit="short",
        about="In the gateway, and inside the engines.",
        series=(
            (f"mileage_replica_queue_requests{{{_REPLICA}}}", "{{replica}} in the gateway"),
            (f"mileage_replica_waiting{{{_REPLICA}}}", "{{replica}} in the engine"),
        ),
    ),
    _Panel(
        title="KV cache in use",
        unit="percentunit",
        about="At 100 % an engine preempts requests, and computes their prompts again.",
        series=((f"mileage_replica_kv_cache_usage_ratio{{{_REPLICA}}}", "{{replica}}"),),
    ),
)
_MACHINE: Final = (
    _Panel(
        title="Fragmentation of the host's free memory",
        unit="percentunit",
        about="Share of it in pieces too small for huge pages: weights are mapped and caches pinned"
        " in many small ones.",
        series=(("mileage_host_memory_fragmentation_ratio", "fragmentation"),),
    ),
    _Panel(
        title="Context switches",
        unit="ops",
        about="involuntary: somebody else wanted the core. They rise where there are more busy"
        " threads than cores.",
        series=(
            (
                f"sum by (role, kind) (rate(mileage_process_context_switches_total{_RATE}))",
                "{{role}} {{kind}}",
            ),
        ),
    ),
    _Panel(
        title="Throughput",
        unit="short",
        about="Tokens per second: what the two beside it cost.",
        series=((_tokens("output"), "output"), (_tokens("prompt"), "prompt")),
    ),
    _Panel(
        title="CPU by role",
        unit="short",
        about="Cores in use.",
        series=((f"sum by (role) (rate(mileage_process_cpu_seconds_total{_RATE}))", "{{role}}"),),
    ),
    _Panel(
        title="Event loop lag",
        unit="s",
        about="By how much the gateway's workers were late: every stream waits for it.",
        series=(
            (
                "histogram_quantile(0.99, sum by (le) "
                f"(rate(mileage_event_loop_lag_seconds_bucket{_RATE})))",
                "p99",
            ),
        ),
    ),
    _Panel(
        title="Request log behind the store",
        unit="bytes",
        about="What is not counted in costs yet.",
        series=(("mileage_ledger_lag_bytes", "bytes"),),
    ),
)
_ROWS: Final = (
    ("Money", _MONEY),
    ("Targets", _TARGETS),
    ("Engines", _ENGINES),
    ("Machine", _MACHINE),
)
