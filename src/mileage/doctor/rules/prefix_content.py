"""Rules of a prefix cache that is on and finds nothing: by the prompts' text, or by a fault."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Opinion
from mileage.doctor.prefix_reuse import (
    HITS_NONE,
    SHARED_TOKENS_MIN,
    arm_hits,
    block_tokens,
    nothing_hits,
    nothing_shared,
    some_hits,
)
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

NEAR_HEAD_TOKENS = 64
"""A difference within the first tokens: no template's fixed head is shorter than four blocks."""

NEAR_HEAD_RATIO = 0.2
"""A difference in the first fifth of the prompt leaves four fifths that could be reused."""

SAME_TEXT = 0.5
"""Share of the rest that is alike from which moving the difference back would save much."""

OTHER_TEXT = 0.3
"""Share of the rest that is alike below which the prompts are simply others."""

PERIOD_SHORT_S = 120.0
"""A head that changes within minutes: blocks are of no use to the next turn of a conversation."""

PERIOD_LONG_S = 3600.0
"""A head that changes by the hour or the day costs one prefill each time, no more."""

PERIOD_KEYS = ("inter_turn_gap_s", "prefix_change_period_s", "first_diff_token", "rate_rps")

ENGINE_KEYS = (
    "engine.version",
    "engine.variant",
    "engine.name",
    "speculative.method",
    "speculative.num_tokens",
    "kv_cache_dtype",
    "enable_lora",
    "quantization",
    "enable_chunked_prefill",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "enforce_eager",
    "disaggregation_mode",
)
"""What does not change the prompts: if hits depend on one of these the engine loses them."""

BLOCKS_MIN = 2.0
"""Blocks that the shared head must fill: of one alone the last token may be computed anew."""

REPROCESSED = r"forcing full prompt re-?processing|cache_reuse is not supported"
"""llama.cpp: it cannot go back to where a prompt differs (window, recurrent state)."""


@rule(
    "PFX003",
    cause="volatile_prefix",
    needs=(
        "first_diff_token",
        "identical_after_diff_ratio",
        "prefix_change_period_s",
        "prefix_cache_hit_ratio",
        "prefix_cache_hits_tokens",
        "inter_turn_gap_s",
        "comparisons",
    ),
    fires={
        "settings": {"enable_prefix_caching": True},
        "workload": {
            "isl_tokens": 1500,
            "first_diff_token": 9,
            "identical_after_diff_ratio": 0.97,
        },
        "signals": {"prefix_cache_hit_ratio": 0},
    },
    clear={
        "workload": {
            "isl_tokens": 1500,
            "first_diff_token": 9,
            "identical_after_diff_ratio": 0.02,
        },
        "signals": {"prefix_cache_hit_ratio": 0},
    },
    silent={"workload": {"isl_tokens": 1500}, "signals": {"prefix_cache_hit_ratio": 0}},
)
def changing_text_near_the_head(e: Evidence) -> Opinion:
    """Text that changes near the head of the prompt makes all that follows miss the cache.

    ## Why it costs money
    A block is found again only if all text before it is the same. A clock, a request id or a
    shuffled list of tools in the first lines makes every later block another one: the whole
    prompt is computed, though nearly all of it was computed a second ago.

    ## How it is told
    Consecutive prompts differ after a few tokens and are alike again after that; or hits come
    only while the changing part stays the same. Prompts that differ after a few tokens and stay
    different are just other prompts. A head that stays the same and does not hit is
    `prefix_cache_engine_bug`, one below the size of a block `prefix_shorter_than_block`.

    ## What to do
    Move the time, ids and names of users behind the fixed text (into the last message), round the
    time to the hour or day, and sort what has no order. No flag of the engine helps.

    ## Risk
    Models weigh what stands last more than what stands first: an instruction or a date that is
    moved can change answers, so run your evaluation over the new prompt. Rounded times make answers
    about "now" wrong by as much.
    """
    case = Case()
    near, alike = _differs_near_head(e), e.number("identical_after_diff_ratio").at_least(SAME_TEXT)
    none = nothing_hits(e)
    returning = either(
        e.is_true("multi_turn"),
        e.number("shared_prefix_ratio").at_least(SAME_TEXT),
        e.number("shared_prefix_tokens").exceeds(e.number("first_diff_token")),
        e.number("prefix_change_period_s").at_most(PERIOD_SHORT_S),
    )
    case.shows(both(near, alike), 4.2)
    case.shows(both(near, none, returning), 4.0)
    case.shows(both(near, none), 2.4)
    case.shows(both(_changes_too_soon(e), either(none, returning)), 3.0)
    case.shows(_hits_within_period(e), 4.2)
    case.refutes(e.number("identical_after_diff_ratio").below(OTHER_TEXT))
    case.refutes(_head_stays(e))
    case.refutes(_little_to_save(e))
    case.sign(e.number("prefix_change_period_s").at_least(PERIOD_LONG_S), yes=-3.0)
    case.sign(none, yes=0.8)
    case.sign(some_hits(e), yes=-1.5)
    case.sign(e.is_false("enable_prefix_caching"), yes=-3.0)
    return case.opinion(advice=_move_it(e))


@rule(
    "PFX004",
    cause="prefix_cache_engine_bug",
    needs=(
        "enable_prefix_caching",
        "shared_prefix_tokens",
        "shared_prefix_ratio",
        "block_size",
        "prefix_cache_queries_tokens",
        "prefix_cache_hits_tokens",
        "prefix_cache_hit_ratio",
        "comparisons",
        "logs",
    ),
    explains=("version_regression",),
    fires={
        "engine": {"name": "vllm"},
        "model": {"architecture": ["moe"]},
        "settings": {"enable_prefix_caching": True, "block_size": 32},
        "workload": {"shared_prefix_tokens": 6000, "isl_tokens": 6400},
        "signals": {"prefix_cache_queries_tokens": 64000, "prefix_cache_hits_tokens": 0},
    },
    clear={
        "settings": {"enable_prefix_caching": True, "block_size": 32},
        "workload": {"shared_prefix_tokens": 6000, "isl_tokens": 6400},
        "signals": {"prefix_cache_hit_ratio": 0.9},
    },
    silent={
        "settings": {"enable_prefix_caching": True, "block_size": 32},
        "signals": {"prefix_cache_queries_tokens": 64000, "prefix_cache_hits_tokens": 0},
    },
)
def identical_prefix_never_hits(e: Evidence) -> Opinion:
    """Identical prefixes of many blocks never hit, though the cache is on.

    ## Why it costs money
    The cache takes memory and looks up every prompt, and the whole prompt is computed anyway.

    ## How it is told
    Prompts share several whole blocks, many more tokens than that were looked up, and nothing was
    found; or hits vanish with a version or a feature of the engine and the same prompts. Not this:
    a head below one block (`prefix_shorter_than_block`), text that changes near the head
    (`volatile_prefix`), more shared text than the cache can hold, a router that spreads turns
    over replicas (`cache_unaware_routing`), or prompts that share nothing.

    ## What to do
    Send one prompt twice to one replica without other load and read its cached tokens; look for
    the engine's issue with this architecture (hybrid, sliding window, latent attention), KV type,
    drafter or adapter; change the version, or switch off the feature that loses the hits.

    ## Risk
    Another engine version changes kernels, defaults and sometimes answers, and switching off a
    feature gives up what it was for (a drafter its speed, 8-bit keys and values half of the room).
    Try it on one replica beside the others, and keep the old image at hand.
    """
    case = Case()
    off = e.is_false("enable_prefix_caching")
    none = nothing_hits(e)
    case.shows(both(_many_blocks_shared(e), none, _looked_up(e)), 4.5)
    case.shows(_hits_lost_by_engine(e), 4.5)
    case.shows(both(e.logged(REPROCESSED), _comes_back(e)), 3.5)
    case.refutes(off)
    case.refutes(some_hits(e))
    case.refutes(nothing_shared(e))
    case.refutes(_differs_near_head(e))
    case.refutes(e.number("prefix_change_period_s").at_most(PERIOD_SHORT_S))
    case.refutes(_shared_above_capacity(e))
    case.sign(e.is_one_of("router.policy", "round_robin", "random", "least_loaded"), yes=-2.0)
    case.sign(e.is_true("enable_prefix_caching"), yes=0.5)
    case.sign(e.includes("model.architecture", "hybrid", "swa", "mla"), yes=0.3)
    return case.opinion()


def _differs_near_head(e: Evidence) -> Check:
    """Do consecutive prompts differ within the first block, or in a small part of the prompt?"""
    first, prompt = e.number("first_diff_token"), e.number("isl_tokens")
    truth: bool | None = None
    if first.known:
        truth = first.value.at_most(NEAR_HEAD_TOKENS)
        if prompt.known and truth is not True:
            truth = first.value.over(prompt.value).at_most(NEAR_HEAD_RATIO)
        elif prompt.known and first.value.over(prompt.value).at_least(0.5):
            truth = False
    return Check(first.key, first.plain(), "near the head of the prompt", truth)


def _head_stays(e: Evidence) -> Check:
    """Do prompts differ only behind most of their text?"""
    first, prompt = e.number("first_diff_token"), e.number("isl_tokens")
    truth: bool | None = None
    if first.known and prompt.known:
        truth = first.value.over(prompt.value).at_least(1.0 - NEAR_HEAD_RATIO)
    return Check(first.key, first.plain(), "behind most of the prompt", truth)


def _little_to_save(e: Evidence) -> Check:
    """Is what comes behind the difference less than a few blocks?"""
    first, prompt = e.number("first_diff_token"), e.number("isl_tokens")
    truth: bool | None = None
    if first.known and prompt.known:
        truth = prompt.value.minus(first.value).below(SHARED_TOKENS_MIN)
    return Check(prompt.key, prompt.plain(), f"< {SHARED_TOKENS_MIN} more tokens", truth)


def _changes_too_soon(e: Evidence) -> Check:
    """Does the head change before its blocks are asked for again?"""
    period, gap = e.number("prefix_change_period_s"), e.number("inter_turn_gap_s")
    truth: bool | None = None
    if period.known:
        truth = period.value.at_most(PERIOD_SHORT_S)
        if gap.known:
            truth = gap.value.at_least(period.value.high) or (truth if truth is False else None)
    return Check(period.key, period.plain(), "before the next prompt of its kind", truth)


def _hits_within_period(e: Evidence) -> Check:
    """Arms: do prompts hit that follow soon, and miss that follow after a change?"""
    truth: bool | None = None
    for comparison in e.comparisons:
        if not comparison.varies_only(*PERIOD_KEYS):
            continue
        known = [ratio for arm in comparison.arms if (ratio := arm_hits(arm)) is not None]
        if len(known) >= 2:
            hit = max(value.low for value in known) > 0.2
            truth = hit and min(value.high for value in known) <= 0.05
    return Check("comparisons", None, "hits only while the head stays the same", truth)


def _many_blocks_shared(e: Evidence) -> Check:
    """Do prompts share at least a few whole blocks?"""
    shared, ratio, prompt = (
        e.number(key) for key in ("shared_prefix_tokens", "shared_prefix_ratio", "isl_tokens")
    )
    tokens = shared.value
    known = shared.known
    if not known and ratio.known and prompt.known:
        tokens, known = ratio.value.times(prompt.value), True
    block = block_tokens(e)
    truth = tokens.at_least(BLOCKS_MIN * block.high) if known else None
    if truth is False and tokens.at_least(BLOCKS_MIN * block.low):
        truth = None
    return Check(shared.key, shared.plain(), f">= {BLOCKS_MIN:g} x {block.shown()} tokens", truth)


def _looked_up(e: Evidence) -> Check:
    """Were more tokens looked up than one head has? Not known counts as yes: some were asked."""
    asked = e.number("prefix_cache_queries_tokens")
    shared = e.number("shared_prefix_tokens")
    truth: bool | None = True
    if asked.known and shared.known:
        truth = asked.total.exceeds(shared.value)
    return Check(asked.key, asked.plain(), "> the shared head", truth)


def _comes_back(e: Evidence) -> Check:
    """Do prompts come back, as far as is known?"""
    once = nothing_shared(e)
    return Check("multi_turn", e.is_true("multi_turn").value, "not unique prompts", not once.truth)


def _hits_lost_by_engine(e: Evidence) -> Check:
    """Arms that differ in the engine alone: hits in one, none in another."""
    truth: bool | None = None
    for comparison in e.comparisons:
        if not comparison.varies_only(*ENGINE_KEYS):
            continue
        known = [ratio for arm in comparison.arms if (ratio := arm_hits(arm)) is not None]
        if len(known) >= 2:
            hit = max(value.low for value in known) > 0.2
            truth = hit and min(value.high for value in known) <= max(HITS_NONE, 0.05)
    return Check("comparisons", None, "hits in one arm of the engine only", truth)


def _shared_above_capacity(e: Evidence) -> Check:
    """Is the shared text of all groups more than the cache can hold?"""
    capacity, groups = e.number("kv_cache_capacity_tokens"), e.number("prefix_groups")
    shared = e.number("shared_prefix_tokens")
    truth: bool | None = None
    if capacity.known and shared.known:
        many = groups.value if groups.known else None
        tokens = shared.value.times(many) if many is not None else shared.value
        truth = tokens.exceeds(capacity.value)
    return Check(shared.key, shared.plain(), "of all groups > kv_cache_capacity_tokens", truth)


def _whole(place: Interval) -> str:
    return f"{round(place.low)}" if place.exact else place.shown()


def _move_it(e: Evidence) -> str:
    first = e.number("first_diff_token")
    if not first.known:
        return ""
    return (
        f"Prompts differ from token {_whole(first.value)} on: move what changes there (time, id) "
        "behind the fixed text, or round it, so that the text before it can be reused."
    )


RULES: tuple[Rule, ...] = (changing_text_near_the_head, identical_prefix_never_hits)
"""Rules of this family."""
