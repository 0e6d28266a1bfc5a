"""What `mileage bench --json` prints: the figures of a run, and how they came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mileage import __version__
from mileage.cli.bench_result import BenchRun
from mileage.measure.call_record import CallRecord
from mileage.measure.run_figures import RunFigures
from mileage.measure.run_groups import GroupKey, figures_by
from mileage.scrape.engine_check import MeanCheck

__all__ = ["bench_document", "encoded", "errors_of"]

_ERRORS_MAX: Final = 20
_GROUPS: Final[tuple[GroupKey, ...]] = ("tenant", "model", "adapter", "endpoint")
_GROUPS_MAX: Final = 20
_HOUR_S: Final = 3600.0


def encoded(document: dict[str, Any]) -> str:
    """The document as one line of JSON."""
    return msgspec.json.encode(document).decode()


def bench_document(run: BenchRun, figures: RunFigures) -> dict[str, Any]:
    """The document. What was not seen is null."""
    load, use = run.load, run.use
    tree: dict[str, Any] = {
        **msgspec.to_builtins(figures),
        "utilisation_ratio": None if use is None else use.utilisation_ratio,
        "memory_bytes": None if use is None else use.memory_bytes,
        "energy_j": None if use is None else use.energy_j,
        **_costs(run, figures),
        "generator": msgspec.to_builtins(load.generator),
        "server": None if use is None else msgspec.to_builtins(use),
        "engine_means": {name: _own_mean(each) for name, each in run.engine_means.items()},
        "steady_state": msgspec.to_builtins(run.steady()),
        "prompt_tokens": _prompt_tokens(run.measured),
        "errors": errors_of(run.measured or load.records),
        "groups": _groups(run),
        "plan": run.plan,
        "window": {
            "started_at_utc": load.started_at_utc,
            "start_s": load.start_s,
            "end_s": load.end_s,
            "elapsed_s": load.elapsed_s,
            "warmup_requests": sum(record.phase == "warmup" for record in load.records),
        },
        "series": msgspec.to_builtins(run.series()),
        "targets": {"ttft_s": run.slo.ttft_s, "itl_s": run.slo.itl_s},
        "conditions": run.conditions,
        "interrupted": run.interrupted,
        "error": run.why_ended,
        "version": __version__,
    }
    return tree


def _costs(run: BenchRun, figures: RunFigures) -> dict[str, Any]:
    """Energy and money for what came out in the window; null where price or energy is not known."""
    tokens_per_s = figures.output_tokens_per_s
    usd_per_hour = None if run.usd_per_gpu_hour is None else run.usd_per_gpu_hour * run.gpus
    energy_j = None if run.use is None else run.use.energy_j
    per_token_j = per_mtok = None
    if tokens_per_s:
        if energy_j is not None:
            per_token_j = energy_j / (tokens_per_s * figures.window_s)
        if usd_per_hour is not None:
            per_mtok = usd_per_hour / _HOUR_S / tokens_per_s * 1e6
    return {
        "energy_j_per_output_token": per_token_j,
        "usd_per_hour": usd_per_hour,
        "usd_per_mtok": per_mtok,
    }


def _own_mean(each: MeanCheck) -> dict[str, Any]:
    return {**msgspec.to_builtins(each), "ratio": each.ratio, "agrees": each.agrees}


def _prompt_tokens(records: Sequence[CallRecord]) -> dict[str, Any]:
    """Planned tokens of prompts beside the engine's counts, where both are known."""
    both = [
        (record.planned_prompt_tokens, record.prompt_tokens)
        for record in records
        if record.planned_prompt_tokens is not None and record.prompt_tokens is not None
    ]
    planned, counted = sum(p for p, _ in both), sum(c for _, c in both)
    return {
        "planned": planned if both else None,
        "counted": counted if both else None,
        "ratio": counted / planned if planned else None,
        "requests": len(both),
    }


def errors_of(records: Sequence[CallRecord]) -> list[dict[str, Any]]:
    """What went wrong, the most frequent first; at most 20 different ones."""
    found = Counter(
        (record.outcome, record.status, record.error)
        for record in records
        if record.outcome not in ("ok", "cancelled")
    )
    return [
        {"class": outcome, "status": status, "error": error, "requests": number}
        for (outcome, status, error), number in found.most_common(_ERRORS_MAX)
    ]


def _groups(run: BenchRun) -> dict[str, dict[str, Any]]:
    """Figures of each tenant, model, adapter and endpoint, where there are several."""
    found: dict[str, dict[str, Any]] = {}
    if not run.has_window:
        return found
    for key in _GROUPS:
        groups = figures_by(
            run.load.records,
            key,
            start_s=run.load.start_s,
            end_s=run.load.end_s,
            slo=run.slo,
            groups_max=_GROUPS_MAX,
        )
        if len(groups) > 1:
            found[key] = {name: msgspec.to_builtins(each) for name, each in groups.items()}
    return found
