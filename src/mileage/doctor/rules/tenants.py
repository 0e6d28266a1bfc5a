"""Rules of many models on many cards: whole fine-tunes, and models that stay loaded unused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mileage.doctor.arms import Arm, Comparison
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

MANY = 3
"""Models side by side from which on they are a fleet and not a pair."""

SPARE_BUSY = 0.3
"""Utilisation of cards that could serve several such models each."""

IDLE_RUNNING = 0.05
"""Mean requests in the running batch below which a model is as good as unused."""

HOUR_S = 3600.0
"""Unused for that long, a model could have been loaded again many times."""

STEM_SHARE = 0.5
"""Share of the names that is the same where models are fine-tunes of one base."""

FLEET_KEYS = frozenset({"model.name", "lora_adapters", "topology.replicas"})

_FLEET = [
    {"arm": "a", "model": {"name": "llama-8b-support"}, "signals": {"gpu_util_ratio": 0.1}},
    {"arm": "b", "model": {"name": "llama-8b-sales"}, "signals": {"gpu_util_ratio": 0.05}},
    {"arm": "c", "model": {"name": "llama-8b-legal"}, "signals": {"gpu_util_ratio": 0.2}},
]

_RESIDENT = [
    {"arm": "a", "model": {"name": "qwen-7b"}, "signals": {"requests_running": 9}},
    {"arm": "b", "model": {"name": "mistral-7b"}, "signals": {"requests_running": 0}},
    {"arm": "c", "model": {"name": "phi-4"}, "signals": {"requests_running": 0}},
]


@rule(
    "TEN001",
    cause="full_finetunes_for_lora",
    needs=("comparisons", "model.params_b", "model.name", "gpu_util_ratio", "enable_lora"),
    fires={
        "model": {"params_b": 8, "architecture": ["dense"]},
        "settings": {"enable_lora": False},
        "comparisons": [{"arms": _FLEET}],
    },
    clear={"settings": {"enable_lora": True}, "workload": {"lora_adapters": 12}},
    silent={"model": {"params_b": 8}, "settings": {"enable_lora": False}},
)
def fine_tunes_on_cards_of_their_own(e: Evidence) -> Opinion:
    """Fine-tunes of one base model each hold a card, where adapters could share one.

    ## Why it costs money
    Each copy keeps all weights on a card of its own, and each serves a part of the load that a
    single card could serve together, in larger batches.

    ## How it is told
    Several models of the same size and shape, whose names share a stem, run side by side with
    cards that are hardly used, and LoRA is off.

    ## What to do
    Train (or extract, by SVD of the difference of weights) adapters, and serve them on one base:
    `--enable-lora --max-loras N`, after checking quality.

    ## Risk
    A low-rank adapter does not hold all that a full fine-tune learned: compare each on its own
    evaluation, and keep the full weights. Tenants on one base share its queue, its cache and its
    outages, so limits per tenant must come first.
    """
    case = Case()
    fleets = [c for c in e.comparisons if _is_fleet(c) and _one_base(c)]
    names = Check("model.name", None, "fine-tunes of one base", True if fleets else None)
    spare = [_all(c.arms, _spare, "cards hardly used") for c in fleets]
    case.shows(both(names, *spare), 3.0)
    case.refutes(e.is_true("enable_lora"))
    case.refutes(e.number("lora_adapters").above(0))
    return case.opinion("info", waste_ratio=_shareable(fleets) if fleets else None)


@rule(
    "TEN002",
    cause="no_idle_unload",
    needs=("comparisons", "model.name", "requests_running", "requests_per_s", "process_uptime_s"),
    fires={
        "settings": {"hpa.min_replicas": 1},
        "signals": {"process_uptime_s": 90_000},
        "comparisons": [{"arms": _RESIDENT}],
    },
    clear={"settings": {"hpa.min_replicas": 0}},
    silent={"settings": {"hpa.min_replicas": 1}, "signals": {"process_uptime_s": 90_000}},
)
def unused_models_stay_loaded(e: Evidence) -> Opinion:
    """Models that nobody asks for stay loaded on cards of their own.

    ## Why it costs money
    An idle card costs as much as a busy one. With many tenants most models are idle most of the
    time, and only their next request is a reason to have them.

    ## How it is told
    Several models side by side, most of them without a request for an hour and more, while at
    least one replica of each is kept. One deployment without traffic is `idle_capacity`.

    ## What to do
    Unload after idle time: the gateway's residency policy, vLLM's sleep mode
    (`--enable-sleep-mode`), or a minimum of 0 replicas with a window longer than a start.

    ## Risk
    The first request after an unload waits for the load: seconds from host memory, minutes from
    disk, longer than many clients' timeouts. Weights that sleep in host memory still take it up,
    and a model that is asked for every few minutes should stay.
    """
    case = Case()
    fleets = [c for c in e.comparisons if _is_fleet(c)]
    unused = [_most(c.arms, _unused) for c in fleets]
    for check in unused:
        case.shows(both(check, e.number("process_uptime_s").at_least(HOUR_S)), 3.0)
    if not unused:
        case.shows(Check("comparisons", None, "of several models", None), 3.0)
    for key in ("hpa.min_replicas", "keda.min_replicas"):
        case.refutes(e.number(key).at_most(0))
        case.sign(e.number(key).at_least(1), yes=0.7)
    return case.opinion("info")


def _is_fleet(comparison: Comparison) -> bool:
    """Are the arms models side by side, and not runs of one deployment one after another?"""
    names = {arm.get("model.name") for arm in comparison.arms}
    alike = comparison.varied() <= FLEET_KEYS
    return alike and None not in names and len(names) == len(comparison.arms) >= MANY


def _one_base(comparison: Comparison) -> bool:
    names = [str(arm.get("model.name")) for arm in comparison.arms]
    known = comparison.first.number("model.params_b").known
    return known and _stem(names) >= STEM_SHARE * min(map(len, names))


def _stem(names: Sequence[str]) -> int:
    """Characters at the head that all names share."""
    shared = 0
    for letters in zip(*names, strict=False):
        if len(set(letters)) > 1:
            break
        shared += 1
    return shared


def _spare(arm: Arm) -> bool | None:
    return arm.number("gpu_util_ratio").value.below(SPARE_BUSY)


def _unused(arm: Arm) -> bool | None:
    running = arm.number("requests_running").value.at_most(IDLE_RUNNING)
    return arm.number("requests_per_s").value.at_most(0.0) if running is None else running


def _all(arms: Sequence[Arm], decide: Callable[[Arm], bool | None], words: str) -> Check:
    answers = [decide(arm) for arm in arms]
    truth = False if False in answers else (None if None in answers else True)
    return Check("comparisons", [arm.name for arm in arms], words, truth)


def _most(arms: Sequence[Arm], decide: Callable[[Arm], bool | None]) -> Check:
    """Is it so for half the arms at least, and not for all of them?"""
    answers = [decide(arm) for arm in arms]
    yes, no = answers.count(True), answers.count(False)
    truth = True if 2 * yes >= len(arms) and no else (None if None in answers else False)
    return Check("comparisons", [arm.name for arm in arms], "most models unused", truth)


def _shareable(fleets: Sequence[Comparison]) -> Interval:
    """All cards but one, at best; none where each fine-tune needs its own for quality."""
    count = max(len(fleet.arms) for fleet in fleets)
    return Interval(0.0, 1.0 - 1.0 / count)


RULES: tuple[Rule, ...] = (fine_tunes_on_cards_of_their_own, unused_models_stay_loaded)
"""Rules of this family."""
