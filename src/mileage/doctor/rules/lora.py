"""Rules of LoRA adapters: slots, ranks and the cost of the path itself."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

DEFAULT_SLOTS = {"vllm": 1.0, "sglang": 8.0}
"""Adapters that the engine keeps on the card where nobody says how many."""

JUMP = 1.5
"""Latency that many times as long with adapters beyond the slots: loads stand in the way."""

LEAP = 3.0
"""More adapters within their slots cost a few per cent: so much more is loading."""

ADAPTER_LINES = r"(remov|evict|unload|swapp?|reload)\w* .{0,30}(lora|adapter)"


@rule(
    "LORA001",
    cause="lora_slot_thrash",
    needs=("lora_adapters", "max_loras", "lora_loads_per_s", "lora_load_s", "comparisons"),
    fires={
        "settings": {"enable_lora": True, "max_loras": 4},
        "workload": {"lora_adapters": 30},
        "signals": {"lora_loads_per_s": 2.5, "lora_load_s": 0.2, "ttft_p99_s": 3.1},
    },
    clear={
        "settings": {"enable_lora": True, "max_loras": 4},
        "workload": {"lora_adapters": 3},
    },
    silent={"settings": {"enable_lora": True, "max_loras": 4}},
)
def adapters_exceed_slots(e: Evidence) -> Opinion:
    """More adapters are in use than the card has slots, so that requests wait for loads.

    ## Why it costs money
    Each load copies an adapter to the card while requests for it wait, often one load at a time;
    a batch mixes no more adapters than there are slots.

    ## How it is told
    Adapters asked for exceed `max_loras`, and adapters are loaded all the time, or the first token
    comes late as soon as there are more adapters than slots. Loads at the start, with slots to
    spare, are none of it.

    ## What to do
    Raise `--max-loras` (SGLang `--max-loras-per-batch`) to the adapters in use and
    `--max-cpu-loras` to all there are; route requests of one adapter to the same replica.

    ## Risk
    Each slot reserves memory for the greatest rank in every layer, taken from the KV cache, and a
    batch of many adapters decodes more slowly than one of few. Too many in host memory
    (`--max-cpu-loras`) push the pod over its limit: raise both in steps.
    """
    case, slots = Case(), _slots(e)
    wanted, loads = e.number("lora_adapters"), e.number("lora_loads_per_s")
    more = wanted.where(
        f"> slots ({slots.shown()})",
        lambda value: value.exceeds(slots) if slots != ANY else None,
    )
    loading = either(loads.above(0.0), e.logged(ADAPTER_LINES))
    jumps = _latency_jumps(e)
    case.shows(both(more, loading), 4.3)
    case.shows(jumps, 4.3)
    case.shows(more, 2.4)
    if slots == ANY:
        case.shows(_latency_leaps(e), 2.8)
    if slots == ANY or not wanted.known:
        case.shows(both(loads.above(0.0), e.number("lora_load_s").above(0.0)), 2.6)
    if jumps.truth is None:
        case.refutes(more.negated())
    case.refutes(both(loads.at_most(0.0), more.negated()))
    case.refutes(e.is_false("enable_lora"))
    case.sign(loads.at_most(0.0), yes=-3.0)
    case.sign(wanted.exceeds(e.number("max_cpu_loras")), yes=0.5)
    return case.opinion(
        advice=_slots_advice(e, slots), changes=_slots_changes(e), waste_ratio=_loading(e)
    )


def _slots(e: Evidence) -> Interval:
    """Adapters that fit the card: as set, else the engine's default where it is known to be."""
    stated = e.number("max_loras")
    if stated.known:
        return stated.value
    default = DEFAULT_SLOTS.get(e.text("engine.name") or "")
    return exactly(default) if stated.unset and default is not None else ANY


def _latency_jumps(e: Evidence) -> Check:
    """Is an arm with more adapters than slots much later than one within them?"""

    def beyond(arm: Arm) -> bool:
        return arm.number("lora_adapters").value.exceeds(_arm_slots(arm, e)) is True

    def within(arm: Arm) -> bool:
        used, slots = arm.number("lora_adapters"), _arm_slots(arm, e)
        return used.known and used.value.at_most(slots.low) is True

    pairs = contrasts(e, beyond, within, "lora_adapters", "max_loras", "max_cpu_loras")
    told = [pair.speed.below(1.0 / JUMP) for pair in pairs if pair.speed.known]
    told += [ratio.above(JUMP) for p in pairs if (ratio := p.ratio("ttft_mean_s")).known]
    words = "slower with more adapters than slots"
    return either(*told) if told else Check("comparisons", None, words, None)


def _latency_leaps(e: Evidence) -> Check:
    """Where slots are not known: is an arm with more adapters, and nothing else, far later?"""
    key, words = "lora_adapters", f"{LEAP:g} x as late with more adapters"
    pairs = contrasts(e, lambda arm: arm.number(key).known, lambda arm: True, key)
    told = [
        pair.speed.below(1.0 / LEAP)
        for pair in pairs
        if pair.speed.known
        and not pair.besides
        and pair.one.number(key).value.exceeds(pair.other.number(key).value)
        and pair.other.number(key).value.at_least(1)
    ]
    return either(*told) if told else Check("comparisons", None, words, None)


def _arm_slots(arm: Arm, e: Evidence) -> Interval:
    stated = arm.number("max_loras")
    return stated.value if stated.known else _slots(e)


def _loading(e: Evidence) -> Interval | None:
    """Share of the time in which an adapter is loaded, one at a time."""
    rate, took = e.number("lora_loads_per_s"), e.number("lora_load_s")
    share = rate.value.times(took.value).clipped(0.0, 1.0)
    return Interval(0.0, share.high) if rate.known and took.known and share.bounded else None


def _slots_advice(e: Evidence, slots: Interval) -> str:
    wanted = e.number("lora_adapters")
    return (
        f"{wanted.value.shown() if wanted.known else 'The'} adapters share {slots.shown()} slots:"
        " raise the slots to the adapters that are in use at a time (each takes the memory of one"
        " at the greatest rank), or send the requests of one adapter to the same replica."
    )


def _slots_changes(e: Evidence) -> tuple[Change, ...]:
    wanted = e.number("lora_adapters").value
    if not wanted.exact or not 1 <= wanted.low < 1e6:
        return ()
    count = int(wanted.low)
    return (Change("max_loras", count), Change("max_cpu_loras", count))


RANK_DEFAULT = 16.0
"""What engines size the buffers for where nobody chooses: below it there is little to win."""

TWICE, FOUR_TIMES = 2.0, 4.0

SLOWER = 0.95
"""Speed below which an arm is slower: repeated runs differ by 2 to 3 %."""


@rule(
    "LORA002",
    cause="lora_rank_overallocated",
    needs=("max_lora_rank", "lora_ranks", "comparisons"),
    explains=("lora_kernel_overhead",),
    fires={
        "settings": {"enable_lora": True, "max_lora_rank": 128},
        "workload": {"lora_ranks": [8, 16]},
    },
    clear={
        "settings": {"enable_lora": True, "max_lora_rank": 64},
        "workload": {"lora_ranks": [16, 64]},
    },
    silent={"settings": {"enable_lora": True, "max_lora_rank": 128}},
)
def buffers_for_ranks_nobody_uses(e: Evidence) -> Opinion:
    """LoRA buffers are sized for a rank far above those of the adapters in use.

    ## Why it costs money
    Every slot has the memory of the greatest rank, for all layers, and kernels work through the
    whole width: room that the KV cache lacks, and time in each step.

    ## How it is told
    `max_lora_rank` is twice the greatest rank in use or more; a run with a smaller one that is
    faster or has a larger cache settles it.

    ## What to do
    Set `--max-lora-rank` to the greatest rank in use, and convert single wide adapters to fewer
    ranks (truncated SVD) where they are alone.

    ## Risk
    An adapter of a higher rank is refused from then on with an error at load, so look through all
    that tenants may bring, not those of today. Truncating an adapter changes its answers: evaluate
    each one.
    """
    case, pairs = Case(), _rank_arms(e)
    pair = slowest(pairs)
    limit, ranks = e.number("max_lora_rank"), e.number("lora_ranks")
    used = ranks.most

    def times(factor: float) -> Check:
        words = f">= {factor:g} x the greatest rank in use ({used.shown()})"
        return limit.where(
            words,
            lambda value: value.over(used).at_least(factor) if ranks.known else None,
        )

    case.shows(both(times(TWICE), limit.above(RANK_DEFAULT)), 2.6)
    case.sign(both(times(FOUR_TIMES), limit.above(RANK_DEFAULT)), yes=1.4)
    if pair is not None:
        case.shows(pair.speed.below(SLOWER), 4.0)
    for each in pairs:
        room = each.ratio_of("kv_cache_capacity_tokens", "kv_capacity_rel", "kv_cache_capacity_gib")
        case.shows(room.below(SLOWER), 4.0)
    case.refutes(times(TWICE).negated())
    case.refutes(e.is_false("enable_lora"))
    changes = (Change("max_lora_rank", used.high),) if ranks.known and used.exact else ()
    return case.opinion(changes=changes, waste_ratio=_waste(pair))


def _rank_arms(e: Evidence) -> tuple[Contrast, ...]:
    """Arms of a greater `max_lora_rank` against those of a smaller one, with the same adapters."""
    key = "max_lora_rank"
    found = contrasts(e, lambda arm: arm.number(key).known, lambda arm: True, key)
    return tuple(
        p
        for p in found
        if p.one.number(key).value.exceeds(p.other.number(key).value) and not p.besides
    )


def _waste(pair: Contrast | None) -> Interval | None:
    if pair is None or not pair.speed.known or not pair.speed.value.bounded:
        return None
    return exactly(1.0).minus(pair.speed.value).clipped(0.0, 1.0)


OVERHEAD = 0.9
"""Speed of one adapter to none below which the path is slow: a rank of 16 adds less than 2 % of
the operations of a layer, and good kernels cost 3 to 8 % with it."""

NO_OVERHEAD = 0.95

LORA_KEYS = ("enable_lora", "lora_adapters", "max_loras", "max_lora_rank", "lora_ranks")


@rule(
    "LORA003",
    cause="lora_kernel_overhead",
    needs=("comparisons", "enable_lora", "lora_adapters", "max_loras"),
    fires={
        "model": {"params_b": 8},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "base",
                        "settings": {"enable_lora": False},
                        "signals": {"output_tokens_per_s": 1900},
                    },
                    {
                        "arm": "one adapter",
                        "settings": {"enable_lora": True, "max_loras": 4},
                        "workload": {"lora_adapters": 1},
                        "signals": {"output_tokens_per_s": 1150},
                        "current": True,
                    },
                ]
            }
        ],
    },
    clear={
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "base",
                        "settings": {"enable_lora": False},
                        "signals": {"output_tokens_per_s": 1900},
                    },
                    {
                        "arm": "one adapter",
                        "settings": {"enable_lora": True},
                        "workload": {"lora_adapters": 1},
                        "signals": {"output_tokens_per_s": 1860},
                    },
                ]
            }
        ]
    },
    silent={"settings": {"enable_lora": True}, "workload": {"lora_adapters": 1}},
)
def lora_path_is_slow(e: Evidence) -> Opinion:
    """The LoRA path costs throughput with even one adapter.

    ## Why it costs money
    Each layer runs several small kernels more, and may lose its CUDA graph or fused kernels.

    ## How it is told
    The same load with one adapter (or few, with slots to spare, or none) is more than 10 % slower
    than without LoRA. More adapters than slots are `lora_slot_thrash`, buffers for unused ranks
    `lora_rank_overallocated`.

    ## What to do
    Merge an adapter that serves most of the traffic into the weights; set `--max-lora-rank` and
    `--max-loras` to what is used; use an engine version with graphs for LoRA; SGLang
    `--lora-backend csgmv` (or `triton`).

    ## Risk
    A merged adapter can no longer be switched off for a request, and needs a deployment of its own
    for those who want the base model. Other LoRA backends support fewer ranks and model types: try
    yours, with several adapters in one batch.
    """
    case, pairs = Case(), _lora_arms(e)
    pair = slowest(pairs)
    if pair is None:
        case.shows(Check("comparisons", None, "with and without LoRA", None), 4.0)
        return case.opinion()
    slots = _arm_slots(pair.one, e)
    used = pair.one.number("lora_adapters")
    beyond = used.where(
        f"> slots ({slots.shown()})",
        lambda value: value.exceeds(slots) if slots != ANY else None,
    )
    case.shows(pair.speed.below(OVERHEAD), 4.0)
    case.shows(both(pair.speed.below(NO_OVERHEAD), used.at_most(1)), 2.4)
    case.refutes(pair.speed.at_least(NO_OVERHEAD))
    case.refutes(beyond)
    case.sign(pair.clean(), no=-1.5)
    return case.opinion(waste_ratio=_waste(pair))


def _lora_arms(e: Evidence) -> tuple[Contrast, ...]:
    """Arms with the path on against arms with it off; else arms with an adapter and without."""
    switched = contrasts(
        e,
        lambda arm: arm.get("enable_lora") is True,
        lambda arm: arm.get("enable_lora") is False,
        *LORA_KEYS,
    )
    used = contrasts(
        e,
        lambda arm: arm.number("lora_adapters").value.at_least(1) is True,
        lambda arm: arm.number("lora_adapters").value.at_most(0) is True,
        *LORA_KEYS,
    )
    return switched or used


RULES: tuple[Rule, ...] = (
    adapters_exceed_slots,
    buffers_for_ranks_nobody_uses,
    lora_path_is_slow,
)
"""Rules of this family."""
