"""trtllm-serve's JSON records, one for each iteration of the engine, as signals and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, whole
from mileage.doctor.collect.setting_values import as_count, as_number

__all__ = ["iteration_facts"]

_MS_PER_S: Final = 1e3
_GB: Final = 1e9


def iteration_facts(records: Sequence[object]) -> FactsDocument:
    """Means over the records of a window; iterations are told once each, so all of them count.

    Block counts (`reusedBlocks`) are cumulative; times are in milliseconds, sizes in bytes.
    """
    found = [record for record in records if isinstance(record, Mapping)]
    if not found:
        return {}
    paused = _numbers(found, "inflightBatchingStats", "numPausedRequests")
    running = _numbers(found, "numActiveRequests")
    signals = {
        "requests_running": _mean(running),
        "requests_running_max": max(running, default=None),
        "requests_waiting": _mean(_numbers(found, "numQueuedRequests")),
        "step_time_s": _scaled(_mean(_numbers(found, "iterLatencyMS")), 1 / _MS_PER_S),
        "preemptions_count": whole(sum(paused)) if paused else None,
        "gpu_mem_used_gb": _scaled(_mean(_numbers(found, "gpuMemUsage")), 1 / _GB),
        **_pool(found),
        **_speculation(found),
    }
    settings = {
        "max_num_seqs": _last_above_zero(found, "maxNumActiveRequests"),
        "max_num_batched_tokens": _last_above_zero(found, "maxNumTokensRuntime"),
        "block_size": _last_above_zero(found, "kvCacheStats", "tokensPerBlock"),
    }
    known = {name: value for name, value in settings.items() if value is not None}
    return facts_document(signals=signals, settings=known)


def _pool(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """KV pool: blocks times tokens per block."""

    def stat(name: str) -> list[float]:
        return _numbers(records, "kvCacheStats", name)

    used, most, size = stat("usedNumBlocks"), stat("maxNumBlocks"), stat("tokensPerBlock")
    signals: dict[str, Any] = {}
    if used and most and max(most) > 0 and max(used) <= max(most):
        signals["kv_cache_usage_ratio"] = min(1.0, (sum(used) / len(used)) / max(most))
    if most and size:
        signals["kv_cache_capacity_tokens"] = int(most[-1] * size[-1])
    reused, missed = stat("reusedBlocks"), stat("missedBlocks")
    if size and len(reused) > 1 and len(missed) > 1:
        hits, misses = _grown(reused) * size[-1], _grown(missed) * size[-1]
        signals["prefix_cache_hits_tokens"] = int(hits)
        signals["prefix_cache_queries_tokens"] = int(hits + misses)
        if hits + misses > 0:
            signals["prefix_cache_hit_ratio"] = hits / (hits + misses)
    elif (rates := stat("cacheHitRate")) and rates[-1] <= 1:
        signals["prefix_cache_hit_ratio"] = rates[-1]
    return signals


def _speculation(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    drafted = sum(_numbers(records, "specDecodingStats", "numDraftTokens"))
    accepted = sum(_numbers(records, "specDecodingStats", "numAcceptedTokens"))
    lengths = [
        value for value in _numbers(records, "specDecodingStats", "acceptanceLength") if value > 0
    ]
    if drafted <= 0 or accepted > drafted:
        return {}
    return {
        "spec_acceptance_ratio": accepted / drafted,
        "spec_mean_accepted_len": _mean(lengths),
    }


def _numbers(records: Sequence[Mapping[str, Any]], *path: str) -> list[float]:
    """The possible values at a path, in the order of the records."""
    found = (_at(record, path, as_number) for record in records)
    return [value for value in found if value is not None and value >= 0]


def _last_above_zero(records: Sequence[Mapping[str, Any]], *path: str) -> int | None:
    """The newest value; 0 is how the engine writes that it does not know."""
    found = (_at(record, path, as_count) for record in reversed(records))
    return next((value for value in found if value), None)


def _at(record: Mapping[str, Any], path: Sequence[str], read: Callable[[object], Any]) -> Any:
    value: object = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return read(value)


def _grown(totals: Sequence[float]) -> float:
    """Growth of a total that may begin anew."""
    return sum(b - a if b >= a else b for a, b in pairwise(totals))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
