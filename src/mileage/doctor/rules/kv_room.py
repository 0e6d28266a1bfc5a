"""How many requests the KV cache holds, by whichever figures say it."""

from __future__ import annotations

import re

from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.quantity import Quantity

__all__ = [
    "KV_FULL_RATIO",
    "fits_few",
    "full_length_fits",
    "kv_at_ceiling",
    "pool_tokens",
    "requests_held_back",
    "too_few_fit_for_load",
    "wanted_in_flight",
]

KV_FULL_RATIO = 0.95
"""Use of the KV cache at which an admission fails: the free blocks hold no further prompt."""

FULL_LENGTH_MIN = 2.0
"""Full-length requests below which one of them shuts out every other."""

BATCH_MIN = 8.0
"""Requests below which a decode step reads the weights for next to nobody: each further request
costs a few per cent of the step and adds a whole token to it."""

HELD_RATIO = 0.5
"""Running below this share of those that want to run: more wait than run."""

LOGGED_CONCURRENCY = re.compile(
    r"maximum concurrency for [\d,]+ tokens per request: *([\d.]+) *x", re.IGNORECASE
)
LOGGED_POOL = re.compile(
    r"KV cache size: *([\d,]+) tokens|max_total_num_tokens=(\d+)", re.IGNORECASE
)


def full_length_fits(e: Evidence) -> Quantity:
    """Requests of `max_model_len` that fit the pool: stated, logged, or pool over length."""
    stated = e.number("kv_max_concurrency")
    if stated.known:
        return stated
    logged = _logged(e, LOGGED_CONCURRENCY)
    if logged is not None:
        return Quantity("kv_max_concurrency", "count", "one", (exactly(logged),))
    pool, longest = pool_tokens(e), e.number("max_model_len")
    if not pool.known or not longest.known or longest.value.low <= 0:
        return stated
    return Quantity("kv_max_concurrency", "count", "one", (pool.least.over(longest.value),))


def pool_tokens(e: Evidence) -> Quantity:
    """Tokens that the KV pool holds: measured, capped by a setting, or logged at the start."""
    for key in ("kv_cache_capacity_tokens", "max_tokens_in_paged_kv_cache"):
        if e.number(key).known:
            return e.number(key)
    logged = _logged(e, LOGGED_POOL)
    if logged is not None:
        return Quantity("kv_cache_capacity_tokens", "tokens", "one", (exactly(logged),))
    size, per_token = e.number("kv_cache_capacity_gib"), Machine(e).kv_bytes_per_token
    if size.known and per_token.bounded and per_token.low > 0:
        tokens = size.least.times(exactly(float(1 << 30))).over(per_token)
        return Quantity("kv_cache_capacity_gib", "GiB", "one", (tokens,))
    return e.number("kv_cache_capacity_tokens")


def fits_few(e: Evidence) -> Check:
    """Does the pool hold fewer than two requests of full length?"""
    fits = full_length_fits(e)
    return Check(
        fits.key, fits.plain(), f"< {FULL_LENGTH_MIN:g}", fits.least.below(FULL_LENGTH_MIN)
    )


def too_few_fit_for_load(e: Evidence) -> Check:
    """Does the pool hold few requests of this load, and far fewer than want to run?"""
    pool, prompt = pool_tokens(e), e.number("isl_tokens")
    answer = e.number("osl_tokens") if e.known("osl_tokens") else e.number("max_tokens")
    if not pool.known or not prompt.known:
        return Check(pool.key, pool.plain(), "holds few requests of this load", None)
    each = prompt.value.plus(answer.value if answer.known else Interval(0.0, 0.0))
    fits, wanted = pool.least.over(each), wanted_in_flight(e)
    return both(
        Check(pool.key, pool.plain(), f"< {BATCH_MIN:g} x {each.shown()}", fits.below(BATCH_MIN)),
        Check(
            "concurrency",
            wanted.plain() if wanted != ANY else None,
            f"more than fit ({fits.shown()})",
            wanted.exceeds(fits.over(exactly(HELD_RATIO))) if wanted != ANY else None,
        ),
    )


def wanted_in_flight(e: Evidence) -> Interval:
    """Requests that would run if there were room; `ANY` where nothing tells."""
    wanted = e.number("concurrency")
    if wanted.known:
        return wanted.value
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    if running.known and waiting.known:
        return running.total.plus(waiting.total)
    return ANY


def kv_at_ceiling(e: Evidence) -> Check:
    """Is the KV cache full on every unit?"""
    return e.number("kv_cache_usage_ratio").all_above(KV_FULL_RATIO - 1e-9)


def requests_held_back(e: Evidence) -> Check:
    """Do requests wait while only a handful run, and fewer than the cap allows?"""
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    seen = running if running.known else e.number("requests_running_max")
    few = Check(seen.key, seen.plain(), f"< {BATCH_MIN:g}", seen.most.below(BATCH_MIN))
    waits = either(
        waiting.above(0.0),
        e.number("queue_time_mean_s").exceeds(e.number("ttft_mean_s"), HELD_RATIO),
        e.number("concurrency").exceeds(seen, 1.0 / HELD_RATIO),
    )
    cap = e.number("max_num_seqs")
    return both(few, waits, cap.exceeds(seen)) if cap.known else both(few, waits)


def _logged(e: Evidence, pattern: re.Pattern[str]) -> float | None:
    """The last figure that a log line states by the pattern."""
    for found in e.log_matches(pattern, last_first=True):
        digits = next(group for group in found.groups() if group)
        try:
            return float(digits.replace(",", ""))
        except ValueError:
            continue
    return None
