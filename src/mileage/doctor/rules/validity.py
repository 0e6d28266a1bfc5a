"""Rules of comparisons: what they prove, and what they do not."""

from __future__ import annotations

import re

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import exactly
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.ab_doubts import (
    against_expectation,
    another_change,
    another_load,
    memory_freed,
    not_exercised,
    some_setting_differs,
    telling_pairs,
    unlike_age,
    unlike_state,
)
from mileage.doctor.rules.slower_arm import any_slower, share_lost

__all__ = ["RULES"]


@rule(
    "VALID001",
    cause="version_regression",
    needs=("engine.version", "engine.variant", "comparisons"),
    fires={
        "engine": {"name": "vllm"},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "earlier",
                        "engine": {"version": "0.8.2"},
                        "signals": {"output_tokens_per_s": 2300},
                    },
                    {
                        "arm": "now",
                        "engine": {"version": "0.9.0"},
                        "signals": {"output_tokens_per_s": 1710},
                        "current": True,
                    },
                ]
            }
        ],
    },
    clear={
        "engine": {"name": "vllm"},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "earlier",
                        "engine": {"version": "0.8.2"},
                        "signals": {"output_tokens_per_s": 2300},
                    },
                    {
                        "arm": "now",
                        "engine": {"version": "0.9.0"},
                        "signals": {"output_tokens_per_s": 2480},
                    },
                ]
            }
        ],
    },
    silent={"engine": {"name": "vllm", "version": "0.9.0"}},
)
def newer_version_is_slower(e: Evidence) -> Opinion:
    """The same setup is slower on a newer version of the engine.

    ## Why it costs money
    The upgrade took a share of every card's throughput with it.

    ## How it is told
    Two versions side by side that differ in nothing else, and the newer one is slower. Where
    settings, quotas or the load changed as well, the comparison is no proof (`confounded_ab`).
    Where the container is out of CPU, a version that uses more threads shows it, and the quota is
    the cause (`cpu_thread_oversubscription`).

    ## What to do
    Stay on the older version; look for a default that changed between the two (graph capture,
    chunked prefill, kernels) in the release notes; report it with both figures.

    ## Risk
    The older version lacks later security and correctness fixes, and perhaps the model that you add
    next: pin it with a date to look again. Caches of compiled kernels and saved states of the newer
    one do not fit it.
    """
    case = Case()
    newer = _newer_against_older(e)
    clean = tuple(pair for pair in newer if not pair.besides)
    case.shows(any_slower(clean), 4.0)
    if any_slower(clean).truth is None:
        case.refutes(both(any_slower(newer), _other_changes(newer)))
    case.refutes(_quota_binds(e))
    case.sign(e.is_unset("env.OMP_NUM_THREADS"), yes=-0.5)
    case.sign(_threads_beyond_quota(e), yes=-2.0)
    worst = next((pair for pair in clean if pair.speed.known), None)
    return case.opinion(
        advice=f"Go back to {worst.other.get('engine.version') or worst.other.name} until the "
        f"loss since is understood."
        if worst is not None
        else "Go back to the older version until the loss is understood.",
        waste_ratio=share_lost(clean),
    )


def _newer_against_older(e: Evidence) -> tuple[Contrast, ...]:
    def versioned(arm: Arm) -> bool:
        return arm.get("engine.version") is not None or arm.get("engine.variant") is not None

    return tuple(
        pair
        for pair in contrasts(e, versioned, versioned, "engine.version", "engine.variant")
        if _release(pair.one) > _release(pair.other)
        and pair.one.get("engine.name") == pair.other.get("engine.name")
    )


def _release(arm: Arm) -> tuple[tuple[int, ...], str]:
    """An order of versions: numbers as numbers; of one release the generation (v0, v1)."""
    text = str(arm.get("engine.version") or "")
    numbers = [int(digits[:9]) for digits in re.findall(r"\d+", text.split("+")[0])[:5]]
    candidate = 0 if re.search(r"(rc|dev|alpha|beta|a|b)\d*", text) else 1
    padded = (*numbers, 0, 0, 0, 0)[:4]
    return (*padded, candidate), str(arm.get("engine.variant") or "")


def _other_changes(pairs: tuple[Contrast, ...]) -> Check:
    besides = sorted({key for pair in pairs for key in pair.besides})
    return Check("comparisons", besides or None, "other things differ", bool(besides))


def _quota_binds(e: Evidence) -> Check:
    """Is the container out of CPU?"""
    used, limit = e.number("cpu_cores_used"), e.number("k8s.cpu_limit")
    at_limit = Check(
        used.key,
        used.plain(),
        ">= 0.9 x k8s.cpu_limit",
        limit.value.times(exactly(0.9)).exceeds(used.value) is False
        if used.known and limit.known
        else None,
    )
    return either(at_limit, e.number("cpu_throttled_ratio").any_above(0.01))


def _threads_beyond_quota(e: Evidence) -> Check:
    limit = e.number("k8s.cpu_limit")
    return either(
        e.number("threads_per_process_count").exceeds(limit, 2.0),
        e.number("cpu_visible_count").exceeds(limit, 2.0),
    )


@rule(
    "VALID002",
    cause="confounded_ab",
    explains=("version_regression", "cpu_thread_oversubscription", "startup_cpu_starved"),
    needs=("comparisons", "process_uptime_s", "engine.version"),
    fires={
        "comparisons": [
            {
                "restarted_between_arms": True,
                "arms": [
                    {
                        "arm": "before",
                        "settings": {"max_num_seqs": 128},
                        "signals": {"output_tokens_per_s": 400, "process_uptime_s": 900000},
                    },
                    {
                        "arm": "after",
                        "settings": {"max_num_seqs": 64},
                        "signals": {"output_tokens_per_s": 1100, "process_uptime_s": 300},
                        "current": True,
                    },
                ],
            }
        ]
    },
    clear={
        "comparisons": [
            {
                "restarted_between_arms": False,
                "arms": [
                    {
                        "arm": "a",
                        "settings": {"k8s.cpu_limit": 2},
                        "signals": {"output_tokens_per_s": 400, "process_uptime_s": 4000},
                    },
                    {
                        "arm": "b",
                        "settings": {"k8s.cpu_limit": 6},
                        "signals": {"output_tokens_per_s": 420, "process_uptime_s": 4100},
                    },
                ],
            }
        ]
    },
    silent={
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "a",
                        "settings": {"max_num_seqs": 128},
                        "signals": {"output_tokens_per_s": 400},
                    },
                    {
                        "arm": "b",
                        "settings": {"max_num_seqs": 64},
                        "signals": {"output_tokens_per_s": 360},
                    },
                ],
            }
        ]
    },
)
def comparison_proves_nothing(e: Evidence) -> Opinion:
    """The compared arms differ in more than the setting that is said to have made the difference.

    ## Why it costs money
    The setting is rolled out, the cause stays. A restart frees leaked memory, fragmented caches
    and stuck requests: whatever was changed with it looks like the cure.

    ## How it is told
    One arm is an old process and the other a fresh one; the change can only take away and yet it is
    faster; the version, the load, the hardware or the state of a cache changed with the setting; or
    the load does not use what was changed. A sweep of the load, or an A/B of one setting on
    processes of like age, is a fair comparison.

    ## What to do
    Restart both arms, warm both up, change one thing, and run them side by side:
    `mileage bench ab`. If the old process was slow, look for what grows with its age.

    ## Risk
    Restarting both arms loses their caches, and two deployments side by side need twice the cards
    for the time of the test. A clean comparison may take away a gain that has been reported
    already: that is its purpose.
    """
    case = Case()
    pairs = telling_pairs(e)
    named = some_setting_differs(pairs)
    restarted, aged, odd = _restarted(e), unlike_age(pairs), against_expectation(pairs)
    doubts = (
        (both(restarted, odd), 3.5),
        (odd, 2.5),
        (another_change(pairs), 3.0),
        (another_load(pairs), 3.0),
        (unlike_state(pairs), 3.0),
        (not_exercised(pairs), 3.0),
    )
    case.shows(aged, 3.5 if named else 2.7)
    for doubt, weight in doubts:
        case.shows(doubt, weight)
    if not any(doubt.truth for doubt, _ in doubts):
        case.refutes(both(restarted.negated(), aged.negated()))
    case.sign(restarted, yes=0.5, no=-1.0)
    grown = either(e.number("host_rss_growth_gb_per_h").above(0.0), memory_freed(pairs))
    case.sign(grown, yes=0.5 if named else -1.5)
    if not grown.truth:
        # A setting that was changed with the restart explains no more than the restart does.
        case.sign(both(restarted, aged), yes=0.5)
    return case.opinion(
        advice="Repeat it with one change and processes of like age, side by side, before it is "
        "rolled out."
    )


def _restarted(e: Evidence) -> Check:
    told = [c.restarted_between_arms for c in e.comparisons if c.restarted_between_arms is not None]
    truth = None if not told else any(told)
    return Check("comparisons", truth, "restarted between the arms", truth)


RULES: tuple[Rule, ...] = (newer_version_is_slower, comparison_proves_nothing)
"""Rules of this family."""
