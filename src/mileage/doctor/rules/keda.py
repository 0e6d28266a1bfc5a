"""Rules of KEDA beside the HPA that it makes: all replicas at once, or back and forth."""

from __future__ import annotations

from itertools import pairwise

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

ZERO = 0.0


@rule(
    "ASC006",
    cause="keda_cooldown_bypasses_hpa",
    needs=(
        "replicas_current",
        "keda.min_replicas",
        "keda.idle_replicas",
        "keda.cooldown_s",
        "hpa.scale_down_policy",
        "scale_to_zero_events_count",
    ),
    fires={
        "settings": {
            "autoscaler.kind": "keda",
            "keda.cooldown_s": 120,
            "keda.min_replicas": 0,
            "hpa.scale_down_policy": "gradual",
        },
        "signals": {"replicas_current": {"series": [{"value": 8}, {"value": 8}, {"value": 0}]}},
    },
    clear={
        "settings": {"autoscaler.kind": "keda", "keda.min_replicas": 1, "keda.cooldown_s": 120},
        "signals": {"replicas_current": {"series": [{"value": 8}, {"value": 4}, {"value": 1}]}},
    },
    silent={"settings": {"autoscaler.kind": "keda", "hpa.scale_down_policy": "gradual"}},
)
def all_replicas_go_at_once(e: Evidence) -> Opinion:
    """KEDA takes all replicas to zero at once, past the gradual policy of the HPA.

    ## Why it costs money
    The next request finds nothing and waits for a node, an image and a model; all replicas then
    start together. The steps that the HPA's behaviour section asks for never run, because KEDA
    itself sets the scale to zero when its cooldown ends.

    ## How it is told
    Replicas go from several to none in one step, the minimum is 0, and the policy is gradual. An
    HPA alone never goes to zero. Pods that are removed while they start are
    `scale_to_zero_kills_starting_pod`.

    ## What to do
    Keep `minReplicaCount` at 1 or more and let the HPA do all steps; or make the trigger stay
    active (a lower `activationThreshold`, a longer `cooldownPeriod`) until the HPA is at 1.

    ## Risk
    One replica that always stays is paid for around the clock. A lower activation threshold keeps
    the service up for stray requests, health checks among them.
    """
    case = Case()
    keda = _is_keda(e)
    least, idle = e.number("keda.min_replicas"), e.number("keda.idle_replicas")
    zero = either(least.at_most(ZERO), least.is_unset(), idle.at_most(ZERO))
    gradual = either(
        e.is_one_of("hpa.scale_down_policy", "gradual"),
        e.number("hpa.scale_down_stabilization_s").above(0.0),
    )
    dropped = _drops_to_zero(e)
    case.shows(both(dropped, keda), 3.4)
    case.shows(both(dropped, gradual), 2.8)
    case.shows(
        both(e.number("scale_to_zero_events_count").any_above(0.0), keda, gradual, zero), 2.6
    )
    case.refutes(both(least.above(ZERO), idle.at_most(ZERO).negated()))
    case.refutes(both(least.above(ZERO), _not_given(idle)))
    case.refutes(e.is_one_of("hpa.scale_down_policy", "immediate"))
    case.refutes(both(dropped.negated(), keda))
    case.sign(gradual, yes=0.8)
    case.sign(zero, yes=0.5)
    case.sign(e.number("pod_kill_before_ready_count").any_above(0.0), yes=-2.5)
    return case.opinion(changes=(Change("keda.min_replicas", 1),))


@rule(
    "ASC007",
    cause="keda_idle_vs_min_flapping",
    needs=("keda.idle_replicas", "keda.min_replicas", "keda.polling_s", "replicas_current"),
    fires={
        "settings": {
            "autoscaler.kind": "keda",
            "keda.idle_replicas": 2,
            "keda.min_replicas": 4,
            "keda.polling_s": 15,
        },
        "signals": {"replicas_current": {"series": [{"value": 2}, {"value": 4}, {"value": 2}]}},
    },
    clear={
        "settings": {"autoscaler.kind": "keda", "keda.idle_replicas": 0, "keda.min_replicas": 4}
    },
    silent={"settings": {"autoscaler.kind": "keda", "keda.min_replicas": 4}},
)
def idle_and_minimum_fight(e: Evidence) -> Opinion:
    """KEDA's idle count and the HPA's minimum set the replicas against each other.

    ## Why it costs money
    Without traffic KEDA scales to `idleReplicaCount`; the HPA that it made sees fewer replicas
    than its minimum and scales up again. Each turn a model is loaded and thrown away, GPUs are
    busy with start-ups, and the idle replica that was meant to save money does not.

    ## How it is told
    The idle count is above 0 and below the minimum, and replicas flip between the two at the
    polling interval. The only idle count that works beside an HPA is 0.

    ## What to do
    Leave `idleReplicaCount` out and set `minReplicaCount` to what should stay; or set it to 0.

    ## Risk
    Without `idleReplicaCount` the minimum runs even when nobody asks, which costs as many cards;
    with 0 in both, the first request waits for a whole start. KEDA writes its HPA anew at the
    change: do it outside the peak.
    """
    case = Case()
    idle, least = e.number("keda.idle_replicas"), e.number("keda.min_replicas")
    between = both(idle.above(ZERO), least.exceeds(idle))
    flips = _flips(e)
    case.shows(between, 3.3)
    case.shows(both(_is_keda(e), flips, _below_minimum(e)), 3.0)
    case.shows(both(idle.above(ZERO), flips), 2.6)
    case.refutes(idle.at_most(ZERO))
    case.refutes(idle.is_unset())
    case.refutes(
        both(
            idle.above(ZERO),
            idle.where(
                "< keda.min_replicas",
                lambda value: value.at_least(least.value.high) if least.known else None,
            ),
        )
    )
    case.sign(flips, yes=1.2, no=-0.5)
    case.sign(_at_polling(e), yes=0.5)
    return case.opinion(changes=(Change("keda.idle_replicas", None),))


def _is_keda(e: Evidence) -> Check:
    kind = e.contains("autoscaler.kind", "keda")
    if kind.truth is not None:
        return kind
    keys = ("keda.cooldown_s", "keda.min_replicas", "keda.idle_replicas", "keda.polling_s")
    known = next((key for key in keys if e.known(key)), None)
    shown = None if known is None else e.number(known).plain()
    return Check(known or "autoscaler.kind", shown, "KEDA scales", True if known else None)


def _not_given(quantity: Quantity) -> Check:
    return Check(quantity.key, quantity.plain(), "not given", not quantity.known)


def _replicas_over_time(e: Evidence) -> tuple[Interval, ...]:
    """Replicas in order of time: a series, or arms that differ in nothing that is set."""
    for key in ("replicas_current", "replicas_ready"):
        if e.number(key).series:
            return e.number(key).series
    for comparison in e.comparisons:
        known = [arm.number("replicas_current") for arm in comparison.arms]
        if not comparison.varied() and all(quantity.known for quantity in known):
            return tuple(quantity.value for quantity in known)
    return ()


def _drops_to_zero(e: Evidence) -> Check:
    """Do replicas go from several, and more than the minimum, to none in one step?"""
    series, least = _replicas_over_time(e), e.number("keda.min_replicas")
    floor = max(1.0, least.value.high) if least.known else 1.0
    truth: bool | None = None
    if len(series) >= 2:
        steps = [{before.above(floor), after.at_most(ZERO)} for before, after in pairwise(series)]
        if {True} in steps:
            truth = True
        elif all(False in step for step in steps):
            truth = False
    shown = e.number("replicas_current").plain()
    return Check("replicas_current", shown, "from several to 0 in one step", truth)


def _flips(e: Evidence) -> Check:
    """Do replicas go back and forth?"""
    series = [part.middle for part in _replicas_over_time(e)]
    moves = [after - before for before, after in pairwise(series)]
    moves = [move for move in moves if move]
    turns = sum(one * other < 0 for one, other in pairwise(moves))
    truth = turns >= 1 if len(series) >= 3 else None
    return Check("replicas_current", e.number("replicas_current").plain(), "flips", truth)


def _below_minimum(e: Evidence) -> Check:
    """Were there fewer replicas than the minimum, and some? Only an idle count does that."""
    series, least = _replicas_over_time(e), e.number("keda.min_replicas")
    truth: bool | None = None
    if series and least.known:
        lows = [both_ends.low for both_ends in series]
        truth = any(0 < low < least.value.low for low in lows)
    return Check("replicas_current", None, "below keda.min_replicas, above 0", truth)


def _at_polling(e: Evidence) -> Check:
    """Is the time between two readings that differ about the polling interval?"""
    replicas, polling = e.number("replicas_current"), e.number("keda.polling_s")
    times = [time_s for time_s in replicas.times_s if time_s is not None]
    truth: bool | None = None
    if len(times) == len(replicas.parts) and len(times) >= 3 and polling.known:
        changes = [
            times[n] for n in range(1, len(times)) if replicas.parts[n] != replicas.parts[n - 1]
        ]
        gaps = [after - before for before, after in pairwise(changes)]
        if gaps:
            mean = sum(gaps) / len(gaps)
            truth = 0.5 * polling.value.low <= mean <= 2.0 * polling.value.high
    return Check("keda.polling_s", polling.plain(), "the time between flips", truth)


RULES: tuple[Rule, ...] = (all_replicas_go_at_once, idle_and_minimum_fight)
"""Rules of this family."""
