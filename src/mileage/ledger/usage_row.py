"""UsageRow: what was used in one hour of one replica by requests that are booked alike."""

from __future__ import annotations

import msgspec

__all__ = ["CapacityRow", "UsageRow"]


class UsageRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sum over requests: one row per hour and combination of the texts. Texts are never None:
    empty where a request has none (no adapter, no key).

    A request that runs across two hours has its GPU time in both, and is counted, with its
    tokens, in the hour in which it arrived.
    """

    hour_at_utc_s: int
    """Start of the hour, seconds since 1970."""
    replica: str
    tenant: str
    model: str
    adapter: str = ""
    key: str = ""
    """Name of the API key, never the key."""
    labels: str = ""
    """`name=value` pairs, sorted, joined by commas."""

    requests: int = 0
    requests_failed: int = 0
    """Of `requests`: those that did not end `ok`."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    gpu_ns: int = 0
    prefill_ns: int = 0
    recomputed_ns: int = 0
    failed_ns: int = 0
    """Of `gpu_ns`: for requests that did not end `ok`."""
    low_ns: int = 0
    high_ns: int = 0
    saturated_ns: int = 0
    """Of `gpu_ns`: in windows that were saturated."""
    charged_nano_usd: int | None = None
    """What budgets were charged for the requests that arrived in the hour; None: no price."""


class CapacityRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """GPU time of one replica in one hour: `capacity_ns` = GPU time of all usage rows of that hour
    and replica + `idle_ns` + `warmup_ns`, exactly."""

    hour_at_utc_s: int
    replica: str
    gpu: str = ""
    """Name of the GPU in the catalogue; empty: not known."""
    gpus: float = 1.0
    """GPUs of the replica, the last that was seen in the hour."""
    capacity_ns: int = 0
    idle_ns: int = 0
    warmup_ns: int = 0
    observed_ns: int = 0
    """Time of the hour, by the clock, of which the replica's state is on record. What is missing of
    the hour was seen by nobody (the gateway was down, or had no such replica): no capacity."""
    late_requests: int = 0
    """Requests on record only after windows in which they ran were settled."""
    late_ns: int = 0
    """Time by the clock that these ran in such windows: none of it is in their GPU time."""
