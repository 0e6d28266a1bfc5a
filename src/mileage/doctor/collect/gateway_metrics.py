"""A Mileage gateway's own metrics over a window -> facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, per_unit, whole
from mileage.doctor.collect.histogram_window import histogram_window
from mileage.doctor.collect.page_window import PageWindow
from mileage.measure.metrics_page import possible

__all__ = ["gateway_facts"]

_LATENCIES: Final[Mapping[str, str]] = {
    "ttft": "mileage_time_to_first_token_seconds",
    "itl": "mileage_inter_token_latency_seconds",
    "e2e": "mileage_request_duration_seconds",
    "queue_time": "mileage_queue_time_seconds",
}
_QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SLOTS_FULL: Final = 0.99
"""A governor that lets at least this share of the engine's slots be used holds nothing back: what
waits in its queue waits for the engine."""


def gateway_facts(window: PageWindow, slots: int | None = None) -> FactsDocument:
    """What the admin plane's /metrics told; lists where there are several replicas.

    `slots`: requests that the engine can run at once, where its page does not say so.

    `requests_waiting` counts what waits inside the engine, and with it what the gateway holds for
    want of engine slots: the same queue, in another place. What the gateway holds by a limit below
    the engine's own is its policy and not in it.
    """
    seconds = window.seconds
    if seconds is None or not window.pages:
        return {}
    replicas = _replicas(window)
    signals: dict[str, Any] = {
        **_load(window, replicas, slots),
        **_rates(window, seconds),
        **_latencies(window),
    }
    settings = {"max_num_seqs": _least(_by_replica(window, "mileage_replica_running_max"))}
    if settings["max_num_seqs"] is None:
        settings = {}
    return facts_document(
        settings=settings,
        workload=_workload(window, seconds),
        signals=signals,
        topology={"replicas": len(replicas)} if replicas else {},
    )


def _load(window: PageWindow, replicas: list[str], known: int | None) -> dict[str, Any]:
    running = _by_replica(window, "mileage_replica_running")
    flying = _by_replica(window, "mileage_replica_in_flight")
    slots = _by_replica(window, "mileage_replica_running_max")
    limits = _by_replica(window, "mileage_replica_limit")
    waiting = _by_replica(window, "mileage_replica_waiting")
    held = _by_replica(window, "mileage_replica_queue_requests")
    kv = _by_replica(window, "mileage_replica_kv_cache_usage_ratio")
    runs = {name: running.get(name) or flying.get(name) or [] for name in replicas}
    queued: list[float] = []
    for name in replicas:
        inside, outside = waiting.get(name), held.get(name)
        free = _for_slots(limits.get(name), slots.get(name) or ([known] if known else None))
        parts = [_mean(inside)] if inside else []
        if outside and free:
            parts.append(_mean(outside))
        if parts:
            queued.append(sum(parts))
    open_now = _gauge(window, "mileage_requests_in_flight")
    return {
        "requests_running": per_unit([_mean(runs[n]) for n in replicas if runs[n]]),
        "requests_running_max": per_unit([max(runs[n]) for n in replicas if runs[n]]),
        "requests_waiting": per_unit(queued),
        "kv_cache_usage_ratio": per_unit([_mean(kv[n]) for n in replicas if kv.get(n)]),
        "client_requests_in_flight_max": max(open_now, default=None),
        "proxy_requests_in_flight_max": max(
            (sum(at) for at in zip(*(flying[n] for n in replicas if n in flying), strict=False)),
            default=None,
        ),
    }


def _rates(window: PageWindow, seconds: float) -> dict[str, Any]:
    # A gateway that was asked nothing has no series of it yet: 0 is known.
    prompt = window.named_increase("mileage_prompt_tokens_total") or 0.0
    cached = window.named_increase("mileage_cached_tokens_total")
    outcomes = window.by_label("mileage_requests_total", "outcome")
    answers = window.by_label("mileage_responses_total", "status")
    done = outcomes.get("ok", 0.0) if outcomes else None
    signals: dict[str, Any] = {
        "prompt_tokens_per_s": _per_s(prompt, seconds),
        "output_tokens_per_s": _per_s(
            window.named_increase("mileage_output_tokens_total") or 0.0, seconds
        ),
        "requests_per_s": _per_s(outcomes.get("ok", 0.0), seconds),
        "requests_completed_count": None if done is None else whole(done),
        "requests_failed_per_s": _per_s(outcomes.get("failed", 0.0), seconds),
        "http_429_count": whole(answers["429"]) if "429" in answers else None,
        "http_5xx_count": whole(sum(n for code, n in answers.items() if code.startswith("5")))
        if answers
        else None,
        "prefix_cache_queries_tokens": None if not prompt else whole(prompt),
        "prefix_cache_hits_tokens": whole(cached or 0.0) if prompt else None,
    }
    return signals


def _latencies(window: PageWindow) -> dict[str, Any]:
    signals: dict[str, Any] = {}
    for kind, name in _LATENCIES.items():
        found = histogram_window(window, (name,))
        if found is None:
            continue
        signals[f"{kind}_mean_s"] = found.mean
        for word, q in _QUANTILES.items():
            signals[f"{kind}_{word}_s"] = found.quantile(q)
    return signals


def _workload(window: PageWindow, seconds: float) -> dict[str, Any]:
    done = window.by_label("mileage_requests_total", "outcome").get("ok")
    arrived = window.named_increase("mileage_requests_total") or 0.0
    targets = {
        f"slo_{kind}_s": window.last.samples("mileage_target_seconds")
        for kind in ("ttft", "itl")
        if window.last is not None
    }
    workload: dict[str, Any] = {
        "kind": "online",
        "rate_rps": _per_s(arrived, seconds),
        "isl_tokens": _each(window.named_increase("mileage_prompt_tokens_total"), done),
        "osl_tokens": _each(window.named_increase("mileage_output_tokens_total"), done),
    }
    for name, samples in targets.items():
        kind = name.split("_")[1]
        values = {sample.value for sample in samples if sample.labels.get("target") == kind}
        if len(values) == 1:
            workload[name] = values.pop()
    return workload


def _replicas(window: PageWindow) -> list[str]:
    last = window.last
    samples = last.samples("mileage_replica_in_flight") if last is not None else ()
    return sorted({sample.labels.get("replica", "") for sample in samples})


def _by_replica(window: PageWindow, name: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for at in window.pages:
        for sample in at.page.samples(name):
            if (value := possible(sample.value)) is not None:
                found.setdefault(sample.labels.get("replica", ""), []).append(value)
    return found


def _gauge(window: PageWindow, name: str) -> list[float]:
    read = (possible(sample.value) for at in window.pages for sample in at.page.samples(name))
    return [value for value in read if value is not None]


def _for_slots(limits: list[float] | None, slots: list[float] | None) -> bool:
    """Is the gateway's limit no lower than what the engine can run at once?"""
    if not limits or not slots:
        return not limits  # without a limit nothing is held but for want of slots
    return min(limits) >= _SLOTS_FULL * max(slots)


def _least(by_replica: Mapping[str, list[float]]) -> int | None:
    values = [min(found) for found in by_replica.values() if found]
    return int(min(values)) if values else None


def _mean(values: list[float] | None) -> float:
    return sum(values) / len(values) if values else 0.0


def _per_s(count: float | None, seconds: float) -> float | None:
    return None if count is None else count / seconds


def _each(total: float | None, count: float | None) -> float | None:
    return total / count if total is not None and count else None
