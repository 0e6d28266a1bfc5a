"""Vital signs: what must be known before anybody may say that nothing is wrong."""

from __future__ import annotations

from mileage.doctor.evidence import Evidence

__all__ = ["VITAL_SIGNS", "ails", "vital_groups"]

VITAL_SIGNS: dict[str, tuple[str, ...]] = {
    "queue": (
        "requests_waiting",
        "queue_time_mean_s",
        "queue_time_p50_s",
        "queue_time_p90_s",
        "queue_time_p99_s",
    ),
    "work": (
        "requests_running",
        "requests_per_s",
        "output_tokens_per_s",
        "total_tokens_per_s",
        "requests_per_s_arriving",
        "rate_rps",
    ),
    "memory": ("kv_cache_usage_ratio", "preemptions_count", "preemptions_per_s", "gpu_mem_used_gb"),
    "latency": (
        "ttft_mean_s",
        "ttft_p50_s",
        "ttft_p90_s",
        "ttft_p99_s",
        "itl_mean_s",
        "itl_p50_s",
        "itl_p90_s",
        "itl_p99_s",
        "e2e_mean_s",
        "e2e_p50_s",
        "e2e_p90_s",
        "e2e_p99_s",
        "step_time_s",
    ),
    "device": (
        "sm_active_ratio",
        "gr_engine_active_ratio",
        "gpu_util_ratio",
        "power_w",
        "engine_process_cpu_ratio",
    ),
}
"""Group -> keys, of which one that is known tells the group."""


def vital_groups(evidence: Evidence) -> tuple[str, ...]:
    """The groups of which something is known."""
    return tuple(
        group for group, keys in VITAL_SIGNS.items() if any(evidence.known(key) for key in keys)
    )


TOKEN_S_MAX = 1.0
"""Time between tokens that nobody plans for: ten times that of a model on a CPU."""

TARGETS = (("ttft", "slo_ttft_s"), ("itl", "slo_itl_s"))


def ails(evidence: Evidence) -> bool:
    """Is it plain that something is wrong, whatever its cause: an agreed latency is missed by most,
    or tokens come one by one in seconds?"""
    if evidence.number("itl_p50_s").above(TOKEN_S_MAX).truth:
        return True
    if evidence.number("itl_mean_s").above(TOKEN_S_MAX).truth:
        return True
    return any(
        evidence.number(f"{latency}_{form}_s").exceeds(evidence.number(agreed)).truth
        for latency, agreed in TARGETS
        for form in ("mean", "p50")
    )
