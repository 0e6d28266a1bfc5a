"""Signals for limits policies: one sane situation, of which a test changes what it is about."""

from __future__ import annotations

from typing import Any

from mileage.core.replica import ReplicaView
from mileage.policy.limits.limit import LimitSignals, RequestSample

__all__ = ["sample_of", "signals_of", "view_of"]


def sample_of(running: float = 32.0, step_s: float | None = 0.02, **changes: Any) -> RequestSample:
    """A stream of 100 tokens that ran beside others."""
    values: dict[str, Any] = {
        "prompt_tokens": 100,
        "output_tokens": 100,
        "stream": True,
        "ttft_s": 0.3,
        "service_ttft_s": 0.2,
        "itl_p99_s": None if step_s is None else 1.5 * step_s,
        "step_s": step_s,
        "running_mean": running,
        "kv_tokens_mean": running * 150.0,
        "prefill_tokens_per_step": running,
    }
    return RequestSample(**values | changes)


def signals_of(in_flight: int = 32, **changes: Any) -> LimitSignals:
    """A replica with as many requests in flight, more waiting, and no view of it."""
    values: dict[str, Any] = {
        "view": None,
        "running_max": 256,
        "in_flight": in_flight,
        "in_flight_peak": in_flight,
        "waiting": 10,
        "arrivals": 5.0,
    }
    return LimitSignals(**values | changes)


def view_of(observed_s: float = 0.0, **changes: Any) -> ReplicaView:
    """An observation of that time."""
    return ReplicaView(replica="replica", observed_s=observed_s, **changes)
