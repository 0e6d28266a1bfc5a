"""Doubts about a comparison: what else differs between its arms, what should not have helped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mileage.doctor.arms import Arm
from mileage.doctor.check import Check
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.vocabulary import KEYS

__all__ = [
    "DIFFERENCE_MIN",
    "against_expectation",
    "another_change",
    "another_load",
    "memory_freed",
    "not_exercised",
    "some_setting_differs",
    "telling_pairs",
    "unlike_age",
    "unlike_state",
]

DIFFERENCE_MIN = 0.1
"""Difference of speed that somebody would draw a conclusion from."""

AGE_FACTOR = 5.0
AGE_GAP_S = 1800.0
"""Ages that are so unlike that what grows with age (leaks, fragmentation) may be the difference;
within half an hour hardly anything has grown."""

FRESH = Interval(0.0, 600.0)
"""Age of a process after a restart, of which nothing else is said: what is measured soon after."""

MEMORY_FACTOR = 1.5
"""Host memory of one arm over the other's that says that it had grown with age."""

HIT_GAP = 0.3
"""Difference of the prefix cache's hit ratio that alone explains a difference of speed."""

CLOCK_GAP = 0.9
"""Ratio of clocks below which the cards of the arms were in unlike condition."""

MORE_IS_MORE = (
    "k8s.cpu_limit",
    "k8s.cpu_request",
    "hardware.cpus",
    "vgpu.core_limit_ratio",
    "proxy.cpus",
    "proxy.replicas",
    "proxy.max_connections",
    "client.max_connections",
    "client.processes",
)
"""Resources of which more never makes an engine slower by itself."""

CACHE_KEYS = frozenset(
    {
        "enable_prefix_caching",
        "block_size",
        "router.policy",
        "router.load_term",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "data_parallel_size",
        "topology.replicas",
        "topology.proxies",
    }
)
"""Settings that change the hit ratio of the prefix cache by their nature."""

LOAD_KEYS = ("isl_tokens", "osl_tokens", "concurrency", "rate_rps", "kind", "max_tokens", "n")
"""Facts of the load that move every figure."""

LOAD_TOLERANCE = 1.25
"""Ratio up to which two loads count as alike."""


def telling_pairs(e: Evidence) -> tuple[Contrast, ...]:
    """All two arms of a comparison, the present one first, that tell a speed."""
    pairs = contrasts(e, lambda _: True, lambda _: True)
    return tuple(pair for pair in pairs if pair.speed.known)


def some_setting_differs(pairs: tuple[Contrast, ...]) -> bool:
    """Is there a setting, or another fact that is no signal, in which arms differ?"""
    return any(_settings(pair) or pair.besides for pair in pairs)


def memory_freed(pairs: tuple[Contrast, ...]) -> Check:
    """Did one arm's process hold far more of the host's memory than the other's?"""
    return _found("host_rss_gb", "far more in one arm", pairs, _unlike_memory)


def unlike_age(pairs: tuple[Contrast, ...]) -> Check:
    """Is one arm's process old and the other's fresh, and is the fresh one faster?"""
    return _found("process_uptime_s", "unlike ages", pairs, _unlike_age)


def against_expectation(pairs: tuple[Contrast, ...]) -> Check:
    """Is the arm with less of a resource clearly faster?"""
    return _found("comparisons", "less of a resource and yet faster", pairs, _less_and_faster)


def another_change(pairs: tuple[Contrast, ...]) -> Check:
    """Did the engine's version, the model or the card change together with a setting?"""
    return _found("comparisons", "a version or machine and a setting differ", pairs, _two_changes)


def another_load(pairs: tuple[Contrast, ...]) -> Check:
    """Did the load change together with a setting?"""
    return _found("comparisons", "the load and a setting differ", pairs, _load_and_setting)


def unlike_state(pairs: tuple[Contrast, ...]) -> Check:
    """Was one arm's cache warm, or its card throttled, and the other's not?"""
    return _found("comparisons", "unlike state of cache or card", pairs, _unlike_state)


def not_exercised(pairs: tuple[Contrast, ...]) -> Check:
    """Do the arms differ in speed though the load does not use what was changed?"""
    return _found("comparisons", "the load does not use what differs", pairs, _unused_change)


def _found(
    signal: str,
    limit: str,
    pairs: Iterable[Contrast],
    decide: Callable[[Contrast], bool | None],
) -> Check:
    answers = [(decide(pair), pair) for pair in pairs]
    for answer, pair in answers:
        if answer:
            shown = f"{pair.one.name} against {pair.other.name}"
            return Check(signal, shown, limit, True)
    known = any(answer is False for answer, _ in answers)
    unknown = not answers or any(answer is None for answer, _ in answers)
    return Check(signal, None, limit, False if known and not unknown else None)


def _settings(pair: Contrast) -> set[str]:
    """Settings that differ; one that only one arm states counts."""
    one, other = pair.one.setup(), pair.other.setup()
    return {
        key
        for key in {*one, *other}
        if KEYS[key][0] == "settings" and one.get(key) != other.get(key)
    }


def _differs(pair: Contrast) -> bool | None:
    """Is the difference of speed worth a conclusion?"""
    speed = pair.speed.value
    less, more = speed.at_most(1.0 - DIFFERENCE_MIN), speed.at_least(1.0 + DIFFERENCE_MIN)
    if less or more:
        return True
    return None if less is None or more is None else False


def _unlike_age(pair: Contrast) -> bool | None:
    one, other = _age(pair, pair.one), _age(pair, pair.other)
    if one is None or other is None:
        return None
    first_older, speed = one.middle > other.middle, pair.speed.value
    old, fresh = (one, other) if first_older else (other, one)
    faster = speed.below(1.0) if first_older else speed.above(1.0)
    far = old.low >= AGE_FACTOR * fresh.high and old.low - fresh.high >= AGE_GAP_S
    return far and faster is True and _differs(pair) is not False


def _unlike_memory(pair: Contrast) -> bool | None:
    ratio = pair.ratio("host_rss_gb")
    if not ratio.known:
        return None
    return ratio.value.low >= MEMORY_FACTOR or ratio.value.high <= 1.0 / MEMORY_FACTOR


def _age(pair: Contrast, arm: Arm) -> Interval | None:
    """Of the arm's process; one that came after a restart and tells no age is fresh."""
    stated = arm.number("process_uptime_s")
    if stated.known and arm.has("process_uptime_s"):
        return stated.value
    after = arm is not pair.comparison.first and pair.comparison.restarted_between_arms
    return FRESH if after else None


def _less_and_faster(pair: Contrast) -> bool | None:
    changed = [key for key in MORE_IS_MORE if key in _settings(pair) | pair.besides]
    if not changed or not (_settings(pair) | set(pair.besides)) <= set(MORE_IS_MORE):
        return None
    for key in changed:
        one, other = pair.one.number(key).value, pair.other.number(key).value
        if other.exceeds(one) and pair.speed.value.at_least(1.0 + DIFFERENCE_MIN):
            return True
        if one.exceeds(other) and pair.speed.value.at_most(1.0 - DIFFERENCE_MIN):
            return True
    return False


def _two_changes(pair: Contrast) -> bool | None:
    if not _settings(pair) or not _differs(pair):
        return None
    versions = [arm.get("engine.version") for arm in (pair.one, pair.other)]
    cards = [arm.get("hardware.gpu") for arm in (pair.one, pair.other)]
    return _both_and_unlike(versions) or _both_and_unlike(cards)


def _both_and_unlike(values: list[object]) -> bool:
    return None not in values and values[0] != values[1]


def _load_and_setting(pair: Contrast) -> bool | None:
    if not _settings(pair) or not _differs(pair):
        return None
    return any(_unlike(pair.one, pair.other, key) for key in LOAD_KEYS)


def _unlike(one: Arm, other: Arm, key: str) -> bool:
    if key == "kind":
        return _both_and_unlike([one.get(key), other.get(key)])
    first, second = one.number(key), other.number(key)
    if not first.known or not second.known:
        return False
    a, b = first.value, second.value
    return a.low > LOAD_TOLERANCE * b.high or b.low > LOAD_TOLERANCE * a.high


def _unlike_state(pair: Contrast) -> bool | None:
    if not _settings(pair) or not _differs(pair):
        return None
    hits = [arm.number("prefix_cache_hit_ratio") for arm in (pair.one, pair.other)]
    unlike = None
    if all(hit.known for hit in hits) and not _settings(pair) & CACHE_KEYS:
        gap = hits[0].value.minus(hits[1].value)
        unlike = gap.low > HIT_GAP or gap.high < -HIT_GAP
    clock = pair.ratio("sm_clock_mhz").value
    if clock.bounded and (clock.high < CLOCK_GAP or clock.low > 1.0 / CLOCK_GAP):
        return True
    return unlike


def _unused_change(pair: Contrast) -> bool | None:
    changed = _settings(pair)
    if len(changed) != 1 or pair.besides - changed or not _differs(pair):
        return None
    return _unused(next(iter(changed)), pair)


def _unused(key: str, pair: Contrast) -> bool | None:
    """Does the load of both arms leave the setting without effect?"""
    arm = pair.one

    def none(fact: str) -> bool:
        return arm.number(fact).value.at_most(0.0) is True

    if key == "enable_prefix_caching":
        alone = none("shared_prefix_ratio") or none("shared_prefix_tokens")
        return alone and arm.get("multi_turn") is not True
    if key == "max_num_seqs":
        load = arm.number("concurrency")
        caps = [each.number(key) for each in (pair.one, pair.other)]
        if not load.known or not all(cap.known for cap in caps):
            return None
        return all(load.value.high <= cap.value.low for cap in caps)
    if key == "structured_output_backend":
        return bool(arm.get("structured_output") == "none")
    if key in ("mm_processor_workers", "mm_resize_threads", "mm_resize_library"):
        return bool(arm.get("mm_input") == "none")
    if key in ("max_loras", "max_cpu_loras", "max_lora_rank"):
        return none("lora_adapters")
    if key in ("env.NCCL_P2P_DISABLE", "disable_custom_all_reduce", "nccl.net_transport"):
        return arm.number("tensor_parallel_size").value.at_most(1.0)
    return None
