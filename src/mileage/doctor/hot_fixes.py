"""What a Mileage gateway can change while it runs to ease a cause: settings to try."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mileage.doctor.finding import Diagnosis

__all__ = ["HOT_FIXES", "HotFix", "hot_fixes"]


class HotFix(msgspec.Struct, frozen=True):
    """Settings by dotted key of the gateway's configuration, and what they do."""

    settings: Mapping[str, bool | float | str]
    why: str


HOT_FIXES: Mapping[str, HotFix] = {
    "no_request_merging": HotFix(
        {"merging.enabled": True}, "identical requests in flight share one generation"
    ),
    "cache_unaware_routing": HotFix(
        {"routing.affinity": True}, "prompts go where their beginning is cached"
    ),
    "affinity_hotspot": HotFix(
        {"routing.affinity": True, "routing.affinity_slack_s": 0.1},
        "a replica is preferred for its cache only while that costs no more than 0.1 s of waiting",
    ),
    "kv_preemption": HotFix(
        {"governor.mode": "act", "governor.policy": "tail_memory"},
        "the limit is halved while the KV cache is full",
    ),
    "scheduler_policy_overcommit": HotFix(
        {"governor.mode": "act", "governor.policy": "tail_memory"},
        "the limit is halved while the KV cache is full",
    ),
}
"""Cause -> what eases it at once. None of them needs a restart, and each can be taken back."""


def hot_fixes(diagnosis: Diagnosis) -> dict[str, HotFix]:
    """Of the findings above info, those that something can be done about at once; the first of two
    that would set one key differently counts."""
    found: dict[str, HotFix] = {}
    taken: dict[str, object] = {}
    for finding in diagnosis.findings:
        fix = HOT_FIXES.get(finding.cause)
        if fix is None or finding.severity == "info":
            continue
        if any(taken.get(key, value) != value for key, value in fix.settings.items()):
            continue
        taken.update(fix.settings)
        found[finding.cause] = fix
    return found
