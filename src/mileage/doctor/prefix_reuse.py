"""What prompts share, and what the engine's prefix cache can make of it, block by block."""

from __future__ import annotations

import re

from mileage.doctor.arms import Arm
from mileage.doctor.check import Check, both, either
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly

__all__ = [
    "arm_hits",
    "block_tokens",
    "cached_share",
    "caching_off",
    "nothing_hits",
    "nothing_shared",
    "shares_a_prefix",
    "some_hits",
]

SHARED_TOKENS_MIN = 32
"""Two usual blocks of 16 tokens: what is shared below that costs nothing worth a finding."""

SHARED_RATIO_MIN = 0.1
"""A tenth of the prompt tokens: less would not show in the time of a prefill."""

HITS_NONE = 0.02
"""Hit ratio of a cache that does not work: chat templates alone give a few tokens."""

HITS_SOME = 0.1
"""Hit ratio of a cache that does work for a part of the prompts."""

BLOCK_DEFAULTS = {"vllm": 16.0, "sglang": 1.0, "tensorrt-llm": 32.0, "llama.cpp": 1.0}
"""Tokens of a block where nothing is set; TensorRT-LLM had 64 before release 1.0."""

BLOCK_USUAL = Interval(1, 128)
"""Blocks of attention alone: 1 to 128 tokens in all engines."""

BLOCK_HYBRID = Interval(16, 16384)
"""With recurrent layers a block is as large as their state: hundreds to thousands of tokens."""

BLOCK_LOGGED = re.compile(r"attention block size to (\d+) tokens", re.IGNORECASE)

OFF_LOGGED = (
    r"enable_prefix_caching['\"]?\s*[=:]\s*'?false|disable_radix_cache['\"]?\s*[=:]\s*'?true"
    r"|enable_block_reuse['\"]?\s*[=:]\s*'?false|--no-enable-prefix-caching|--disable-radix-cache"
    r"|prefix caching is (not supported|disabled)|disabling prefix caching"
    r"|without support for prefix caching|radix cache is disabled|cache_prompt\s*[=:]\s*(0|false)"
)
"""Start-up lines of vLLM, SGLang, TensorRT-LLM and llama.cpp that say that the cache is off."""


def block_tokens(e: Evidence) -> Interval:
    """Tokens of a cacheable block: set, logged, the engine's default, or what it may be."""
    stated = e.number("block_size")
    if stated.known:
        return stated.value
    logged = next(e.log_matches(BLOCK_LOGGED), None)
    if logged is not None:
        return exactly(float(logged.group(1)))
    if e.includes("model.architecture", "hybrid").truth is not False:
        return BLOCK_USUAL.hull(BLOCK_HYBRID)
    default = BLOCK_DEFAULTS.get(engine_family(e.text("engine.name")) or "")
    return exactly(default) if stated.unset and default is not None else BLOCK_USUAL


def cached_share(prompt: float, shared: float, block: float) -> float:
    """Share of a prompt's tokens that a cache of whole blocks finds: floor(s / b) b / prompt."""
    if prompt <= 0 or block <= 0:
        return 0.0
    return min(shared, prompt) // block * block / prompt


def arm_hits(arm: Arm) -> Interval | None:
    """Hit ratio of an arm: as told, or by its counts; None where neither is."""
    ratio, hits = arm.number("prefix_cache_hit_ratio"), arm.number("prefix_cache_hits_tokens")
    if arm.has(ratio.key) and ratio.known:
        return ratio.value
    if not arm.has(hits.key) or not hits.known:
        return None
    asked = arm.number("prefix_cache_queries_tokens")
    if hits.total.high <= 0:
        return exactly(0.0)
    return hits.total.over(asked.total).clipped(0.0, 1.0) if asked.known else None


def caching_off(e: Evidence) -> Check:
    """Is the prefix cache off?"""
    return either(
        e.is_false("enable_prefix_caching"),
        _off_by_default(e),
        _off_in_log(e),
        _never_asked(e),
    )


def shares_a_prefix(e: Evidence) -> Check:
    """Do prompts begin alike for long enough to save something?"""
    tokens, ratio = e.number("shared_prefix_tokens"), e.number("shared_prefix_ratio")
    prompt = e.number("isl_tokens")
    share = Check(tokens.key, tokens.plain(), "part of the prompt", True if tokens.known else None)
    if tokens.known and prompt.known:
        enough = tokens.value.over(prompt.value).at_least(SHARED_RATIO_MIN)
        share = Check(tokens.key, tokens.plain(), f">= {SHARED_RATIO_MIN:g} of the prompt", enough)
    return either(
        e.is_true("multi_turn"),
        both(tokens.at_least(SHARED_TOKENS_MIN), share),
        ratio.at_least(SHARED_RATIO_MIN),
    )


def nothing_shared(e: Evidence) -> Check:
    """Is it known that prompts have no beginning in common?"""
    multi_turn = e.is_true("multi_turn")
    single = Check("multi_turn", multi_turn.value, "not true", not multi_turn.truth)
    return both(
        either(
            e.number("shared_prefix_tokens").below(SHARED_TOKENS_MIN),
            e.number("shared_prefix_ratio").below(SHARED_RATIO_MIN / 2),
        ),
        single,
    )


def nothing_hits(e: Evidence) -> Check:
    """Does the prefix cache find nothing?"""
    return either(
        e.number("prefix_cache_hit_ratio").any_below(HITS_NONE),
        e.number("prefix_cache_hits_tokens").at_most(0.0),
    )


def some_hits(e: Evidence) -> Check:
    """Does the prefix cache find something, in every replica?"""
    return e.number("prefix_cache_hit_ratio").all_above(HITS_SOME)


def _off_by_default(e: Evidence) -> Check:
    """vLLM's first generation had the cache off unless it was asked for."""
    off: bool | None = None
    if e.is_unset("enable_prefix_caching").truth:
        first = e.text("engine.variant") == "v0"
        off = True if first and engine_family(e.text("engine.name")) == "vllm" else None
    return Check("enable_prefix_caching", None, "off by default in this version", off)


def _off_in_log(e: Evidence) -> Check:
    logged = e.logged(OFF_LOGGED)
    return Check("logs", logged.value, "says that the prefix cache is off", logged.truth)


def _never_asked(e: Evidence) -> Check:
    """Prompts are computed and the cache is never looked up: a cache that is on always is."""
    return both(
        e.number("prefix_cache_queries_tokens").at_most(0.0),
        e.number("prompt_tokens_per_s").above(0.0),
    )
