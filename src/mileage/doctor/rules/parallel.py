"""Rules of tensor parallelism: wider than the model needs."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import GIB, Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

WIDTH_KEYS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "hardware.count",
    "topology.replicas",
)
"""Facts that differ where the width does."""

NO_GAIN = 1.05
"""More cards that give no more than this are no faster: repeated runs differ by as much."""

POOR_SHARE = 0.6
"""Share of the added cards' worth that is reached, below which replicas serve clearly more."""

GOOD_SHARE = 0.85
"""Share from which on the width pays: all-reduces of a well chosen width cost 5 to 15 %."""

ROOM_SHARE = 0.5
"""Share of a card that weights may take at half the width, so that it still has a useful cache."""

SMALLEST_CARD_GB = 16.0
"""Where the card is not known: cards that serve models have this much at least."""

IDLE_SHARE = 0.6
"""A card with work at every moment that is busy for less than this waits for something else."""


@rule(
    "TP001",
    cause="tp_too_large_for_small_model",
    needs=("comparisons", "tensor_parallel_size", "model.params_b", "gpu_util_ratio"),
    fires={
        "model": {"params_b": 3, "dtype": "bf16"},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "one card",
                        "settings": {"tensor_parallel_size": 1},
                        "signals": {"output_tokens_per_s": 2100},
                    },
                    {
                        "arm": "four cards",
                        "settings": {"tensor_parallel_size": 4},
                        "signals": {"output_tokens_per_s": 1900},
                        "current": True,
                    },
                ]
            }
        ],
    },
    clear={
        "model": {"params_b": 70, "dtype": "bf16"},
        "hardware": {"gpu": "A100-80GB", "count": 4},
        "settings": {"tensor_parallel_size": 4},
        "signals": {"sm_active_ratio": [0.9, 0.9, 0.9, 0.9], "requests_running": 40},
    },
    silent={"model": {"params_b": 3}, "settings": {"tensor_parallel_size": 4}},
)
def tensor_parallel_too_wide(e: Evidence) -> Opinion:
    """Tensor parallelism is wider than the model needs.

    ## Why it costs money
    Each layer ends in two all-reduces, and each step has its fixed costs, however small a card's
    part is. A model that fits fewer cards serves more as several replicas on the same cards.

    ## How it is told
    A run with fewer cards is as fast, or has more throughput per card; or the model would fit half
    the cards with room for a cache, there is always work, and all cards idle. Weights that need
    the width, and cards that are busy, clear it. A core at its limit is `engine_host_bound`;
    peer-to-peer that is off is `no_p2p_all_reduce`.

    ## What to do
    Lower `--tensor-parallel-size` (SGLang `--tp-size`, TensorRT-LLM `--tp_size`) to the least that
    holds weights and cache, and run replicas on the cards that become free, by
    `--data-parallel-size` or behind a router.

    ## Risk
    One request alone becomes slower, as fewer cards read its weights: check the time between tokens
    of a single stream against its target. Each replica needs room for all weights and has a KV
    cache of its own, so the longest context must fit into fewer cards, and prefix hits spread over
    more replicas.
    """
    case, tensor = Case(), e.number("tensor_parallel_size")
    pair = slowest(_widths(e))
    if pair is not None:
        _weigh_widths(case, pair)
    else:
        loaded = either(
            e.number("requests_running").at_least(2),
            e.number("concurrency").at_least(2),
            e.number("requests_waiting").above(0),
        )
        idle = either(
            e.number("gpu_util_ratio").all_below(IDLE_SHARE),
            e.number("sm_active_ratio").all_below(IDLE_SHARE),
        )
        case.must(tensor.at_least(2))
        case.must(_fits_half(e))
        case.shows(both(idle, loaded), 3.0)
        case.shows(_slow_steps(e), 2.2)
        case.refutes(e.number("sm_active_ratio").all_above(IDLE_SHARE))
        case.refutes(_width_keeps_target(e))
        case.sign(e.number("engine_process_cpu_ratio").any_above(0.9), yes=-1.5)
        case.sign(e.is_true("enforce_eager"), yes=-1.5)
    case.sign(e.is_one_of("hardware.interconnect", "pcie", "ethernet"), yes=0.7)
    case.sign(e.number("hardware.nodes").at_least(2), yes=0.5)
    return case.opinion(
        advice=_width_advice(e, pair), changes=_width_changes(e, pair), waste_ratio=_waste(pair)
    )


def _widths(e: Evidence) -> tuple[Contrast, ...]:
    """Arms of a greater width against those of a smaller one."""
    found = contrasts(e, _is_split, _has_width, *WIDTH_KEYS)
    key = "tensor_parallel_size"
    return tuple(p for p in found if p.one.number(key).value.exceeds(p.other.number(key).value))


def _is_split(arm: Arm) -> bool:
    return arm.number("tensor_parallel_size").value.at_least(2) is True


def _has_width(arm: Arm) -> bool:
    return arm.number("tensor_parallel_size").known


def _weigh_widths(case: Case, pair: Contrast) -> None:
    speed, share = pair.speed, _share_reached(pair)
    case.shows(speed.at_most(NO_GAIN), 4.5)
    case.shows(share.said(f"{share.limit} of the added cards' worth"), 2.8)
    case.refutes(_check_share(pair, GOOD_SHARE, above=True))
    case.refutes(_cache_is_split(pair))
    case.sign(pair.clean(), no=-2.0)


def _cache_is_split(pair: Contrast) -> Check:
    """Does the other arm win by splitting the one KV head that all cards copy (TP002)?"""
    ranks, words = pair.other.number("data_parallel_size"), pair.other.get("model.architecture")
    one_head = pair.other.number("model.kv_heads").value.at_most(1) or "mla" in (words or ())
    truth = bool(one_head) and ranks.value.at_most(1) is not True
    return Check("data_parallel_size", ranks.plain(), "attention by ranks, one KV head", truth)


def _share_reached(pair: Contrast) -> Check:
    return _check_share(pair, POOR_SHARE, above=False)


def _check_share(pair: Contrast, limit: float, *, above: bool) -> Check:
    """Throughput per card of the wide arm over that of the narrow one."""
    gained, cards = pair.throughput, _cards(pair)
    per_card = gained.value.over(cards)
    truth = per_card.at_least(limit) if above else per_card.below(limit)
    words = f"throughput per card x {'>=' if above else '<'} {limit:g}"
    known = gained.known and cards.bounded
    return Check(
        "comparisons", per_card.plain() if known else None, words, truth if known else None
    )


def _cards(pair: Contrast) -> Interval:
    """How many times the narrow arm's cards the wide one has."""
    one, other = pair.one.number("hardware.count"), pair.other.number("hardware.count")
    if one.known and other.known and pair.one.has("hardware.count"):
        return one.value.over(other.value)
    if one.known and one.value == other.value and pair.other.has("data_parallel_size"):
        return exactly(1.0)
    key = "tensor_parallel_size"
    return pair.one.number(key).value.over(pair.other.number(key).value)


def _fits_half(e: Evidence) -> Check:
    """Would the weights take at most half of each card at half the width?"""
    machine, tensor = Machine(e), e.number("tensor_parallel_size").value
    weights, memory = machine.weights_gib, machine.memory_gb
    least = memory.low if memory.bounded else SMALLEST_CARD_GB
    words = "weights fit half the cards, with as much room beside them"
    if not weights.bounded or not tensor.bounded:
        return Check("model.params_b", None, words, None)
    per_card = weights.over(machine.gpus_per_replica).times(exactly(2.0))
    room = ROOM_SHARE * least * 1e9 / GIB
    truth = per_card.at_most(room)
    if truth is False and not memory.bounded:
        truth = None
    return Check("model.params_b", weights.plain(), words, truth)


def _width_keeps_target(e: Evidence) -> Check:
    """Is the agreed gap between tokens met, and would it not be at half the width?

    Half the cards read twice as many weights each: a step takes up to twice as long.
    """
    slo = e.number("slo_itl_s")
    return either(
        *(
            both(slo.exceeds(gap), gap.exceeds(slo, 0.5))
            for gap in (e.number(f"itl_{kind}_s") for kind in ("mean", "p50", "p99"))
        )
    )


def _slow_steps(e: Evidence) -> Check:
    """Do steps take several times what reading the weights takes, over links that are slow?"""
    expected = Machine(e).decode_step_s
    slow_link = e.is_one_of("hardware.interconnect", "pcie", "ethernet")
    if not expected.bounded:
        return both(slow_link, Check("itl_mean_s", None, "far above the step by memory", None))
    limit = 4.0 * expected.high
    return both(
        slow_link, either(e.number("itl_mean_s").above(limit), e.number("step_time_s").above(limit))
    )


def _waste(pair: Contrast | None) -> Interval | None:
    """Share of the cards that the narrow arm's throughput per card would spare."""
    if pair is None or not pair.throughput.known:
        return None
    per_card = pair.throughput.value.over(_cards(pair))
    return exactly(1.0).minus(per_card).clipped(0.0, 1.0) if per_card.bounded else None


def _width_advice(e: Evidence, pair: Contrast | None) -> str:
    if pair is not None:
        narrow = pair.other.number("tensor_parallel_size").value.shown()
        return (
            f"Tensor parallelism of {narrow} served as much per card or more: run replicas of that"
            " width on the cards that become free, and compare throughput and gaps between tokens."
        )
    width = e.number("tensor_parallel_size").value.shown()
    return (
        f"The weights do not need {width} cards: halve the width while weights and cache fit, and"
        " run replicas on the cards that become free."
    )


def _width_changes(e: Evidence, pair: Contrast | None) -> tuple[Change, ...]:
    wide = e.number("tensor_parallel_size").value
    if pair is not None:
        wide = pair.one.number("tensor_parallel_size").value
        narrow = pair.other.number("tensor_parallel_size").value
    else:
        narrow = wide.over(exactly(2.0))
    if not wide.exact or not narrow.exact or narrow.low < 1:
        return ()
    return (
        Change("tensor_parallel_size", int(narrow.low)),
        Change("data_parallel_size", int(wide.low / narrow.low)),
    )


RULES: tuple[Rule, ...] = (tensor_parallel_too_wide,)
"""Rules of this family."""
