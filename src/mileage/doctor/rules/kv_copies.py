"""Rules of a KV cache that cannot be split: each tensor-parallel rank keeps all of it."""

from __future__ import annotations

from collections.abc import Callable

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

LONG_CONTEXT_TOKENS = 10_000
"""Prompts from which on the cache, and not the weights, is much of what a step reads."""

ROOM_SHORT = 0.9
"""Share of the pool in use from which on its size holds the batch back."""

ROOM_AMPLE = 0.5
"""Share of the pool in use up to which a larger one would change nothing."""

FEW = 4
"""Full-length requests that fit: with so few, steps read weights for hardly anybody."""

GROWN = 1.3
"""Twice the cards hold more than twice the tokens where the cache is split, for weights are too."""

SPLIT_KEYS = (
    "tensor_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "hardware.count",
    "max_num_seqs",
)
"""Facts that differ where attention is laid out otherwise."""


@rule(
    "TP002",
    cause="tp_replicates_mla_kv",
    needs=(
        "model.architecture",
        "model.kv_heads",
        "tensor_parallel_size",
        "kv_cache_usage_ratio",
        "kv_cache_capacity_tokens",
        "comparisons",
    ),
    explains=("kv_preemption", "kv_room_too_small", "max_num_seqs_cap"),
    fires={
        "engine": {"name": "sglang"},
        "model": {"name": "DeepSeek-V3", "architecture": ["moe", "mla"], "params_b": 671},
        "settings": {"tensor_parallel_size": 16},
        "signals": {"kv_cache_usage_ratio": 0.97, "requests_waiting": 30, "requests_running": 60},
    },
    clear={
        "model": {"architecture": ["dense"], "kv_heads": 8},
        "settings": {"tensor_parallel_size": 8},
        "signals": {"kv_cache_usage_ratio": 0.97, "requests_waiting": 30},
    },
    silent={"model": {"architecture": ["moe", "mla"]}, "settings": {"tensor_parallel_size": 8}},
)
def cache_copied_to_every_rank(e: Evidence) -> Opinion:
    """Every tensor-parallel rank holds the whole KV cache, for there is one head to split.

    ## Why it costs money
    The latent vector of MLA (and the single head of multi-query attention) cannot be cut by
    heads: N cards hold as many tokens as one. The batch stays small, and reading a long context
    does not get faster with more cards.

    ## How it is told
    One KV head or MLA, a width above 1, and a pool that is short: full, with requests waiting or
    preempted, or too small for the wanted requests; long prompts that are late; or data-parallel
    attention holds several times as much. A pool that is hardly used clears it. With more heads
    than cards it is another cause, such as `kv_room_too_small`.

    ## What to do
    Run attention data parallel and only the experts in parallel: vLLM `--data-parallel-size N
    --tensor-parallel-size 1 --enable-expert-parallel` (or `--decode-context-parallel-size`),
    SGLang `--enable-dp-attention --dp-size N`, TensorRT-LLM `enable_attention_dp: true`.

    ## Risk
    Data-parallel attention gives each request one card's bandwidth for its cache, so a single
    stream is slower and uneven load between ranks makes all of them wait. Attention weights are
    held by every rank, which takes some of the room that is won. It changes the memory layout: test
    the longest context first.
    """
    case, pairs = Case(), _attention_arms(e)
    case.must(_one_head(e), 0.5)
    grown = _room_does_not_grow(e)
    case.must(either(e.number("tensor_parallel_size").at_least(2), _compared(pairs), grown))
    case.refutes(_attention_is_parallel(e))
    _weigh_room(case, e)
    case.shows(_slow_context(e), 2.6)
    for pair in pairs:
        room = pair.ratio_of("kv_capacity_rel", "kv_cache_capacity_tokens", "kv_max_concurrency")
        case.shows(room.below(0.8), 3.5)
        case.shows(pair.speed.below(0.95), 3.0)
    case.shows(grown, 2.6)
    if not pairs:
        ample = e.number("kv_cache_usage_ratio").all_below(ROOM_AMPLE)
        case.refutes(both(ample, e.number("requests_waiting").at_most(0)))
    return case.opinion(advice=_advice(e), changes=_changes(e), waste_ratio=_waste(pairs))


def _weigh_room(case: Case, e: Evidence) -> None:
    usage = e.number("kv_cache_usage_ratio")
    preempted = either(
        e.number("preemptions_count").any_above(0), e.number("preemptions_per_s").any_above(0)
    )
    pool = e.number("kv_cache_capacity_tokens")
    case.shows(usage.any_above(ROOM_SHORT), 2.6)
    case.shows(preempted, 2.6)
    case.shows(pool.where("< the tokens of the wanted requests", _less_than(_wanted(e))), 2.8)
    case.shows(e.number("kv_max_concurrency").at_most(FEW), 2.5)
    case.sign(e.number("requests_waiting").any_above(0), yes=0.7)


def _less_than(limit: Interval) -> Callable[[Interval], bool | None]:
    return lambda value: limit.exceeds(value) if limit.low > 0 else None


def _wanted(e: Evidence) -> Interval:
    """Tokens of all requests that clients want in flight."""
    length = e.number("isl_tokens").value.plus(e.number("osl_tokens").value)
    wanted = e.number("concurrency")
    if not wanted.known or not e.known("isl_tokens"):
        return ANY
    return wanted.value.times(
        Interval(max(length.low, e.number("isl_tokens").value.low), length.high)
    )


def _slow_context(e: Evidence) -> Check:
    """Are long prompts later than agreed?"""
    slo = e.number("slo_ttft_s")
    late = either(
        *(e.number(f"ttft_{kind}_s").exceeds(slo) for kind in ("mean", "p50", "p90", "p99"))
    )
    return both(e.number("isl_tokens").at_least(LONG_CONTEXT_TOKENS), late)


def _one_head(e: Evidence) -> Check:
    """Several heads are no answer where MLA is not excluded: its configuration has them too."""
    known, heads = Machine(e).architecture, e.number("model.kv_heads")
    tagged = e.includes("model.architecture", "mla")
    if known is None:
        return either(tagged, heads.at_most(1))
    named = Check("model.name", e.text("model.name"), "one head", known.mla or known.kv_heads == 1)
    return named if not tagged.truth else tagged


def _attention_is_parallel(e: Evidence) -> Check:
    """SGLang's attention ranks are counted within the width, those of others beside it."""
    ranks, tensor = e.number("data_parallel_size"), e.number("tensor_parallel_size")
    if _is_sglang(e):
        words = f">= tensor_parallel_size ({tensor.value.shown()})"
        return ranks.where(words, lambda value: value.at_least(max(tensor.value.high, 2.0)))
    return tensor.at_most(1)


def _attention_arms(e: Evidence) -> tuple[Contrast, ...]:
    """Arms of tensor-parallel attention against arms with more data-parallel ranks."""
    found = contrasts(e, _is_split, lambda arm: True, *SPLIT_KEYS)
    return tuple(pair for pair in found if _ranks(pair.other).exceeds(_ranks(pair.one)))


def _room_does_not_grow(e: Evidence) -> Check:
    """Does an arm of twice the width or more hold hardly more tokens?"""
    key = "tensor_parallel_size"
    told = [
        pair.ratio_of("kv_cache_capacity_tokens", "kv_capacity_rel").at_most(GROWN)
        for pair in contrasts(e, _is_split, lambda arm: arm.number(key).known, *SPLIT_KEYS)
        if pair.one.number(key).value.over(pair.other.number(key).value).at_least(2)
    ]
    return either(*told) if told else Check("comparisons", None, "room of other widths", None)


def _is_split(arm: Arm) -> bool:
    return arm.number("tensor_parallel_size").value.at_least(2) is True


def _ranks(arm: Arm) -> Interval:
    ranks = arm.number("data_parallel_size")
    return ranks.value if ranks.known else exactly(1.0)


def _compared(pairs: tuple[Contrast, ...]) -> Check:
    return Check("comparisons", None, "arms of other attention ranks", True if pairs else None)


def _waste(pairs: tuple[Contrast, ...]) -> Interval | None:
    told = [pair.speed.value for pair in pairs if pair.speed.known]
    if not told or not told[0].bounded:
        return None
    return exactly(1.0).minus(told[0]).clipped(0.0, 1.0)


def _advice(e: Evidence) -> str:
    width = e.number("tensor_parallel_size").value
    copies = f"{width.low:g} cards keep {width.low:g} copies" if width.exact else "each card keeps"
    # Without the switch each of SGLang's ranks is a whole replica on cards of its own.
    switch = " with --enable-dp-attention" if _is_sglang(e) else ""
    if _is_trtllm(e):
        switch = " with enable_attention_dp: true in the options file"
    return (
        f"Here {copies} of the cache: run attention data parallel over the cards{switch} (experts"
        " stay spread), and the pool holds as many times more tokens."
    )


def _is_sglang(e: Evidence) -> bool:
    return (e.text("engine.name") or "").startswith("sglang")


def _is_trtllm(e: Evidence) -> bool:
    return engine_family(e.text("engine.name")) == "tensorrt-llm"


def _changes(e: Evidence) -> tuple[Change, ...]:
    width = e.number("tensor_parallel_size").value
    if not width.exact or width.low < 2 or _is_trtllm(e):
        return ()
    ranks = Change("data_parallel_size", int(width.low))
    if _is_sglang(e):
        return (ranks,)
    experts = e.includes("model.architecture", "moe").truth
    spread = (Change("enable_expert_parallel", True),) if experts else ()
    return (Change("tensor_parallel_size", 1), ranks, *spread)


RULES: tuple[Rule, ...] = (cache_copied_to_every_rank,)
"""Rules of this family."""
