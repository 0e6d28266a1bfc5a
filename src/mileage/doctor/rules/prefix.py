"""Rules of a prefix cache that cannot work: it is off, or its blocks are too long."""

from __future__ import annotations

from math import inf

from mileage.doctor.arms import Arm, Comparison
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.prefix_reuse import (
    HITS_NONE,
    SHARED_RATIO_MIN,
    SHARED_TOKENS_MIN,
    arm_hits,
    block_tokens,
    cached_share,
    caching_off,
    nothing_hits,
    nothing_shared,
    shares_a_prefix,
    some_hits,
)
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    loss_of_effect,
    speeds,
)

__all__ = ["RULES"]

SAME_SPEED = 0.97
"""Speed of the arm without the cache, over that with it, at which both are alike."""

FORMULA_ERROR = 0.04
"""Hit ratios of reports are rounded, and the first prompt of all misses."""

FORMULA_LOSS = 0.2
"""Share of the prompt that whole blocks leave out from which it is worth a finding."""

LONG_BLOCK = 64
"""Blocks above this are none of attention's usual ones: they round away a good part of a prompt."""


@rule(
    "PFX001",
    cause="prefix_cache_disabled",
    needs=(
        "enable_prefix_caching",
        "shared_prefix_tokens",
        "shared_prefix_ratio",
        "multi_turn",
        "prefix_cache_queries_tokens",
        "comparisons",
        "logs",
    ),
    fires={
        "engine": {"name": "vllm"},
        "settings": {"enable_prefix_caching": False},
        "workload": {"isl_tokens": 3000, "shared_prefix_tokens": 2500},
    },
    clear={
        "settings": {"enable_prefix_caching": False},
        "workload": {"isl_tokens": 700, "shared_prefix_tokens": 0, "multi_turn": False},
    },
    silent={"settings": {"enable_prefix_caching": False}, "workload": {"isl_tokens": 3000}},
)
def prefix_cache_off(e: Evidence) -> Opinion:
    """Prefix caching is off while prompts begin alike.

    ## Why it costs money
    The common head (system prompt, examples, the conversation so far) is computed again for each
    request. Prefill is compute-bound: the GPU time of those tokens is paid each time.

    ## How it is told
    The cache is off by its setting, by the start-up log, or because no token was ever looked up
    while prompts were computed; and prompts share a head, or conversations come back. An A/B of
    the setting shows it without either. Prompts that share nothing lose nothing. With the cache
    on and no hits see `volatile_prefix`, `prefix_shorter_than_block`, `prefix_cache_engine_bug`.

    ## What to do
    vLLM: `--enable-prefix-caching` (the default of V1). SGLang: remove `--disable-radix-cache`.
    TensorRT-LLM: `kv_cache_config.enable_block_reuse: true`. llama.cpp: `cache_prompt` true.

    ## Risk
    Cached blocks are kept in memory that was free before, without taking it from running requests;
    hashing costs little. Tenants that share a cache can tell from response times whether somebody
    sent the same text: separate them with a cache salt (vLLM `cache_salt`) where that matters. Some
    model types (hybrid, some multimodal) do not support it in older versions.
    """
    case = Case()
    off, shares = caching_off(e), shares_a_prefix(e)
    pairs = speeds(e, "enable_prefix_caching", lambda arm: _off_in(arm))
    case.shows(both(off, shares), 4.5)
    case.shows(both(_not_on(e), effect_check(pairs, SAME_SPEED)), 4.5)
    case.refutes(e.is_true("enable_prefix_caching"))
    case.refutes(some_hits(e))
    case.refutes(nothing_shared(e))
    case.refutes(free_of_effect(pairs, SAME_SPEED))
    case.sign(_block_too_long(e), yes=-2.0)
    return case.opinion(
        changes=(Change("enable_prefix_caching", True),),
        waste_ratio=loss_of_effect(pairs),
    )


@rule(
    "PFX002",
    cause="prefix_shorter_than_block",
    needs=(
        "block_size",
        "shared_prefix_tokens",
        "max_model_len",
        "isl_tokens",
        "multi_turn",
        "prefix_cache_hit_ratio",
        "comparisons",
        "logs",
    ),
    fires={
        "engine": {"name": "vllm"},
        "settings": {"enable_prefix_caching": True, "block_size": 1056},
        "workload": {"shared_prefix_tokens": 800, "isl_tokens": 1000},
        "signals": {"prefix_cache_hit_ratio": 0},
    },
    clear={
        "settings": {"enable_prefix_caching": True, "block_size": 16},
        "workload": {"shared_prefix_tokens": 800},
        "signals": {"prefix_cache_hit_ratio": 0.7},
    },
    silent={
        "settings": {"enable_prefix_caching": True, "block_size": 1056},
        "signals": {"prefix_cache_hit_ratio": 0},
    },
)
def prefix_shorter_than_a_block(e: Evidence) -> Opinion:
    """What prompts share is shorter than the block that the prefix cache works with.

    ## Why it costs money
    Only whole blocks are found again. Models with recurrent layers make the block as large as
    their state, hundreds or thousands of tokens: a shared head below that is computed for every
    request, and of a longer one the part above the last whole block.

    ## How it is told
    The block is longer than the shared head, than the prompts, or than any prompt may be; or hit
    ratios follow floor(prompt / block) x block / prompt. A head of several blocks that never hits
    is `prefix_cache_engine_bug`; text that changes near the beginning is `volatile_prefix`.

    ## What to do
    Use a smaller block where the engine lets you (`--block-size`, `--page-size`,
    `tokens_per_block`; vLLM's hybrid models: a smaller state type such as
    `--mamba-ssm-cache-dtype`, or a newer release); put more of the common text first, so that it
    fills a block; let `max_model_len` hold several blocks.

    ## Risk
    Smaller blocks are slower or unsupported with some attention kernels, which then fall back to
    another backend: watch the decode step. Hybrid models couple the block to their state's size, so
    a smaller state type may cost accuracy.
    """
    case = Case()
    case.shows(_block_above_context(e), 4.5)
    case.shows(both(_block_too_long(e), _worth_it(e)), 4.5)
    case.shows(both(_block_above_prompt(e), shares_a_prefix(e)), 4.5)
    case.shows(_hits_follow_blocks(e), 5.0)
    case.shows(_hits_from_one_block_on(e), 4.5)
    case.shows(_rest_of_block_lost(e), 2.6)
    case.refutes(e.is_false("enable_prefix_caching"))
    case.refutes(nothing_shared(e))
    case.refutes(_many_blocks(e))
    case.sign(nothing_hits(e), yes=0.8)
    case.sign(e.includes("model.architecture", "hybrid"), yes=0.5)
    case.sign(both(some_hits(e), _block_too_long(e)), yes=-4.0)
    return case.opinion(advice=_block_advice(e))


def _off_in(arm: Arm) -> bool | None:
    value = arm.get("enable_prefix_caching")
    return None if value is None else value is False


def _not_on(e: Evidence) -> Check:
    """The deployment as it runs is not known to have the cache on."""
    on = e.is_true("enable_prefix_caching")
    return Check(on.signal, on.value, "not known to be on", on.truth is not True)


def _block_too_long(e: Evidence) -> Check:
    """Is the block longer than the shared head?"""
    return _longer_than(e, "shared_prefix_tokens")


def _block_above_prompt(e: Evidence) -> Check:
    """Is the block longer than the whole prompt?"""
    return _longer_than(e, "isl_tokens")


def _block_above_context(e: Evidence) -> Check:
    """Is the block longer than any prompt may be?"""
    return _longer_than(e, "max_model_len")


def _longer_than(e: Evidence, key: str) -> Check:
    tokens, block = e.number(key), block_tokens(e)
    truth = block.exceeds(tokens.value) if tokens.known else None
    if truth is None and tokens.known and not block.exact:
        return Check("block_size", None, f"> {key} ({tokens.value.shown()})", None)
    return Check("block_size", block.plain(), f"> {key} ({tokens.value.shown()})", truth)


def _many_blocks(e: Evidence) -> Check:
    """Does the shared head hold so many blocks that the rest above the last is a small part?"""
    shared, block = e.number("shared_prefix_tokens"), block_tokens(e)
    truth = shared.value.at_least(block.high / FORMULA_LOSS) if shared.known else None
    return Check(shared.key, shared.plain(), f"> {1 / FORMULA_LOSS:g} blocks", truth)


def _worth_it(e: Evidence) -> Check:
    """Is the shared head long enough to be worth a block of its own?"""
    tokens, prompt = e.number("shared_prefix_tokens"), e.number("isl_tokens")
    truth = tokens.value.at_least(SHARED_TOKENS_MIN) if tokens.known else None
    if truth and prompt.known:
        truth = tokens.value.over(prompt.value).at_least(SHARED_RATIO_MIN)
    return Check(tokens.key, tokens.plain(), "a good part of the prompt", truth)


def _hits_follow_blocks(e: Evidence) -> Check:
    """Prompts of other lengths: does each have the hit ratio of its whole blocks?"""
    for comparison in e.comparisons:
        truth = _follows(comparison)
        if truth is not None:
            return Check(
                "comparisons.prefix_cache_hit_ratio",
                None,
                "floor(isl / block) x block / isl",
                truth,
            )
    return Check("comparisons", None, "floor(isl / block) x block / isl", None)


def _hits_from_one_block_on(e: Evidence) -> Check:
    """Arms: do prompts hit where they can fill a block, and never where they cannot?"""
    limit = "hits only where a block can be filled"
    for comparison in e.comparisons:
        for key in ("max_model_len", "isl_tokens", "shared_prefix_tokens"):
            if not comparison.varies_only(key, "block_size"):
                continue
            told = [_fills_and_hits(arm, key) for arm in comparison.arms]
            known = [pair for pair in told if pair is not None]
            if {True, False} <= {fills for fills, _ in known}:
                truth = all(fills == hits for fills, hits in known)
                return Check("comparisons.prefix_cache_hit_ratio", None, limit, truth)
    return Check("comparisons", None, limit, None)


def _fills_and_hits(arm: Arm, key: str) -> tuple[bool, bool] | None:
    tokens, block = arm.number(key), arm.number("block_size")
    hits = arm_hits(arm)
    if not tokens.known or not block.known or hits is None or block.value.low <= LONG_BLOCK:
        return None
    fills, hit = tokens.value.at_least(block.value.high), hits.above(HITS_NONE)
    return None if fills is None or hit is None else (fills, hit)


def _follows(comparison: Comparison) -> bool | None:
    points = 0
    rounded_away = 0.0
    for arm in comparison.arms:
        prompt, hits = arm.number("isl_tokens").value, arm_hits(arm)
        block = arm.number("block_size").value
        if hits is None or not block.exact or prompt.high == inf:
            continue
        if block.low <= LONG_BLOCK:
            return None
        low, high = _formula(prompt, block.low)
        if hits.high < low - FORMULA_ERROR or hits.low > high + FORMULA_ERROR:
            return False
        points += 1
        rounded_away = max(rounded_away, 1.0 - high)
    return rounded_away >= FORMULA_LOSS if points >= 2 else None


def _formula(prompt: Interval, block: float) -> tuple[float, float]:
    """Least and most share of whole blocks over all prompts of the interval."""
    low_end = max(prompt.low, 0.0)
    blocks_low, blocks_high = low_end // block, prompt.high // block
    if blocks_low == blocks_high:
        ends = [cached_share(end, end, block) for end in (low_end, prompt.high)]
        return min(ends), max(ends)
    return min(blocks_low * block / (blocks_low * block + block), 1.0), 1.0


def _rest_of_block_lost(e: Evidence) -> Check:
    """The shared head holds whole blocks and loses much of itself above the last of them."""
    shared, block = e.number("shared_prefix_tokens"), block_tokens(e)
    prompt, hits = e.number("isl_tokens"), e.number("prefix_cache_hit_ratio")
    truth: bool | None = None
    if block.exact and block.low > LONG_BLOCK and shared.value.exact and prompt.value.exact:
        expected = cached_share(prompt.value.low, shared.value.low, block.low)
        lost = shared.value.low / max(prompt.value.low, 1.0) - expected
        if hits.known:
            seen = abs(hits.value.middle - expected) <= FORMULA_ERROR and hits.value.bounded
            truth = seen and lost >= FORMULA_LOSS and expected > 0
    return Check(hits.key, hits.plain(), "of whole blocks of the shared head only", truth)


def _block_advice(e: Evidence) -> str:
    block, shared = block_tokens(e), e.number("shared_prefix_tokens")
    if not block.exact:
        return ""
    found = f"The prefix cache finds only whole blocks of {block.low:g} tokens"
    common = f", and prompts share {shared.value.shown()}" if shared.known else ""
    return (
        f"{found}{common}: use a smaller block if the engine and model allow it, or move common "
        f"text to the front until it fills {block.low:g} tokens."
    )


RULES: tuple[Rule, ...] = (prefix_cache_off, prefix_shorter_than_a_block)
"""Rules of this family."""
