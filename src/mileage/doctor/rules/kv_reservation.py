"""Rules of keys and values that are reserved and never stored."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower, larger_than, share_lost

__all__ = ["RULES"]

UNUSED_RATIO = 0.7
"""Use of the pool below which three in ten tokens that are paid for hold nothing."""

WORST_CASE_FACTOR = 2.0
"""Asked-for output over real output from which on a worst-case reservation halves the batch."""


DEFAULT_RESERVED_TOKENS = 512.0
"""What SGLang keeps for each decoding request where nothing is set."""

PROMPTS_STORED = 0.5
"""Share of the running requests' prompts that is stored at any time, at the least: those that are
admitted and still computed hold a part."""


@rule(
    "KV003",
    cause="kv_reservation_worst_case",
    needs=(
        "num_reserved_decode_tokens",
        "scheduler.policy",
        "max_tokens",
        "osl_tokens",
        "kv_cache_usage_ratio",
        "requests_waiting",
        "comparisons",
    ),
    fires={
        "engine": {"name": "tensorrt-llm"},
        "settings": {"scheduler.policy": "guaranteed_no_evict", "max_num_seqs": 64},
        "workload": {"max_tokens": 8000, "osl_tokens": 300},
        "signals": {"requests_running": 9, "requests_waiting": 30, "kv_cache_usage_ratio": 0.3},
    },
    clear={
        "settings": {"scheduler.policy": "guaranteed_no_evict"},
        "signals": {"requests_running": 60, "requests_waiting": 30, "kv_cache_usage_ratio": 0.96},
    },
    silent={
        "settings": {"scheduler.policy": "guaranteed_no_evict"},
        "workload": {"max_tokens": 8000},
    },
)
def kv_reserved_for_worst_case(e: Evidence) -> Opinion:
    """Keys and values are reserved for the longest answer, so that few requests may run.

    ## Why it costs money
    Answers are mostly far shorter than what clients allow. Room that is reserved for what never
    comes stands empty while requests wait.

    ## How it is told
    Requests wait and the batch is below its cap, although the pool is hardly used; the policy
    reserves the full length, or a large number of tokens is kept for every decoding request; or
    an A/B of these shows it. A pool that is really full is `kv_room_too_small`.

    ## What to do
    Have clients ask for a `max_tokens` near what they use; SGLang: lower
    `--num-reserved-decode-tokens` or `--schedule-conservativeness`; TensorRT-LLM:
    `MAX_UTILIZATION`, if what then is preempted costs less.

    ## Risk
    More admitted on trust means that some are preempted or retracted when answers turn out long,
    and pay for their prompts twice. Clients that lower `max_tokens` cut off answers at that length:
    look at how many end with `finish_reason: length`. Go back if preemptions per second rise.
    """
    case = Case()
    pairs = (*_no_evict_pairs(e), *_more_reserved(e))
    reserves, held, unused = _reserves(e), _held_below_cap(e), _pool_unused(e)
    asked, used = e.number("max_tokens"), e.number("osl_tokens")
    padded = asked.exceeds(used, WORST_CASE_FACTOR)
    kept = e.number("num_reserved_decode_tokens")
    case.shows(any_slower(pairs), 5.0)
    below = e.known("max_num_seqs") and e.known("requests_running")
    case.shows(both(reserves, held, unused), 4.0 if below else 3.0)
    case.shows(both(reserves, held, padded), 3.5)
    case.shows(both(held, unused, padded), 3.5)
    case.shows(both(kept.exceeds(used, WORST_CASE_FACTOR), either(held, unused)), 3.5)
    case.shows(both(kept.above(DEFAULT_RESERVED_TOKENS), held, unused), 3.0)
    case.shows(both(reserves, held, _few_run(e)), 2.6)
    if any_slower(pairs).truth is not True:
        case.refutes(e.number("kv_cache_usage_ratio").all_above(0.9))
        case.refutes(e.number("requests_waiting").at_most(0.0))
        case.refutes(e.number("requests_running").exceeds(e.number("max_num_seqs"), 0.95))
        case.refutes(_less_than_prompts(e))
    case.sign(padded, yes=0.5, no=-1.5)
    case.sign(e.is_one_of("disaggregation_mode", "decode"), yes=0.5)
    return case.opinion(
        advice=f"Clients allow {asked.value.shown()} tokens and use {used.value.shown()}: "
        "lower what they ask for, or reserve less."
        if asked.known and used.known
        else "Reserve less than the longest answer for each request.",
        changes=(Change("num_reserved_decode_tokens", None),)
        if kept.known
        else (Change("scheduler.policy", "max_utilization"),)
        if e.text("scheduler.policy") is not None
        else (),
        waste_ratio=share_lost(pairs),
    )


def _reserves(e: Evidence) -> Check:
    """Does the engine reserve an answer's full length on admission?"""
    stated = e.is_one_of("scheduler.policy", "guaranteed_no_evict")
    engine = e.text("engine.name") or ""
    by_default = (
        e.is_unset("scheduler.policy") if engine.startswith(("tensorrt", "triton")) else None
    )
    tgi = Check(
        "engine.name", engine or None, "reserves prompt and max_tokens", engine == "tgi" or None
    )
    return either(stated, tgi) if by_default is None else either(stated, by_default)


def _held_below_cap(e: Evidence) -> Check:
    running, cap = e.number("requests_running"), e.number("max_num_seqs")
    waits = e.number("requests_waiting").any_above(0.0)
    return both(waits, cap.exceeds(running)) if running.known and cap.known else waits


def _pool_unused(e: Evidence) -> Check:
    return e.number("kv_cache_usage_ratio").all_below(UNUSED_RATIO)


def _less_than_prompts(e: Evidence) -> Check:
    """Is less used than the prompts alone would fill, were the pool all reserved?"""
    usage = e.number("kv_cache_usage_ratio")
    prompt, asked = e.number("isl_tokens"), e.number("max_tokens")
    if not (usage.known and prompt.known and asked.known) or prompt.value.low <= 0:
        return Check(usage.key, usage.plain(), "below the prompts' share", None)
    share = prompt.value.over(prompt.value.plus(asked.value)).times(exactly(PROMPTS_STORED))
    return Check(
        usage.key,
        usage.plain(),
        f"< {share.shown()}, the prompts' share of what is reserved",
        share.exceeds(usage.most),
    )


def _few_run(e: Evidence) -> Check:
    return e.number("requests_running").where(
        "< half of max_num_seqs",
        lambda running: (
            exactly(1.0).exceeds(running.over(e.number("max_num_seqs").value.times(exactly(0.5))))
            if e.known("max_num_seqs")
            else None
        ),
    )


def _no_evict_pairs(e: Evidence) -> tuple[Contrast, ...]:
    pairs = contrasts(
        e,
        lambda arm: arm.get("scheduler.policy") == "guaranteed_no_evict",
        lambda arm: arm.get("scheduler.policy") == "max_utilization",
        "scheduler.policy",
    )
    return tuple(pair for pair in pairs if not pair.besides)


def _more_reserved(e: Evidence) -> tuple[Contrast, ...]:
    """Arms that reserve more, or ask for more with the same answers, beside those with less."""
    key = "num_reserved_decode_tokens"
    unset = contrasts(e, lambda arm: arm.number(key).known, lambda arm: arm.number(key).unset, key)
    asked = tuple(pair for pair in larger_than(e, "max_tokens") if "osl_tokens" in pair.one.values)
    return (*(pair for pair in unset if not pair.besides), *larger_than(e, key), *asked)


RULES: tuple[Rule, ...] = (kv_reserved_for_worst_case,)
"""Rules of this family."""
