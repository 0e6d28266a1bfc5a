"""Rules of scaling up: more replicas are asked for than there is room for."""

from __future__ import annotations

from math import inf

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

PENDING_FACTOR = 3.0
PENDING_MANY = 10.0
"""Ten pods and more, three for each that serves: no scaler grows a fleet fourfold in one step
because of load that the fleet has just served."""

UNSCHEDULABLE = r"insufficient (nvidia\.com/gpu|\S*gpu)|FailedScheduling.{0,200}gpu"
"""Events of the scheduler where no node has a GPU left."""


@rule(
    "ASC004",
    cause="autoscaler_overshoot",
    needs=(
        "replicas_desired",
        "replicas_pending",
        "replicas_ready",
        "hpa.max_replicas",
        "hardware.schedulable_gpus",
        "k8s.gpu_request",
        "logs",
    ),
    fires={
        "hardware": {"schedulable_gpus": 4},
        "settings": {"hpa.max_replicas": None, "k8s.gpu_request": 1},
        "signals": {"replicas_desired": 20, "replicas_ready": 4, "replicas_pending": 16},
    },
    clear={
        "hardware": {"schedulable_gpus": 8},
        "settings": {"hpa.max_replicas": 8, "k8s.gpu_request": 1},
        "signals": {"replicas_desired": 6, "replicas_ready": 6, "replicas_pending": 0},
    },
    silent={"settings": {"hpa.max_replicas": None}},
)
def asks_for_more_than_there_is(e: Evidence) -> Opinion:
    """The autoscaler asks for more replicas than the cluster can run.

    ## Why it costs money
    Pods that cannot be placed hold their place in the queue, take nodes of others when they come,
    and hide that the service is at its limit. Where nodes are added by themselves the bill has no
    upper end.

    ## How it is told
    Replicas that are asked for, times the GPUs of each, exceed what can be scheduled; many pods
    stay pending, with no maximum set or one above that. Pods that are pending only while a node
    or a model starts are not this.

    ## What to do
    Set `maxReplicas` to what the cluster has; scale by more than one request for each replica
    (target); slow the scale-up policy; reject or queue beyond it in the gateway.

    ## Risk
    A lower maximum means that a peak queues or is rejected instead of being served: agree on which
    requests may be refused first. A slower scale-up leaves the first minutes of a burst to the
    replicas that are there.
    """
    case = Case()
    room = _replicas_that_fit(e)
    desired, pending = e.number("replicas_desired"), e.number("replicas_pending")
    ready = e.number("replicas_ready")
    maximum = e.number("hpa.max_replicas")
    limit = f"> {room.shown()} that fit"
    too_many = desired.where(limit, lambda _: desired.most.exceeds(room))
    no_maximum = maximum.is_unset().said("no maximum")
    unlimited = either(no_maximum, maximum.where(limit, lambda most: most.exceeds(room)))
    stuck = pending.where("> replicas_ready", lambda count: count.exceeds(ready.value))
    case.shows(too_many, 4.0)
    case.shows(both(unlimited, pending.any_above(0.0), stuck if ready.known else unlimited), 3.4)
    case.shows(_most_are_pending(e), 2.4)
    case.shows(both(e.logged(UNSCHEDULABLE), either(pending.any_above(0.0), unlimited)), 3.2)
    case.refutes(pending.all_below(0.5))
    case.refutes(both(too_many.negated(), unlimited.negated()))
    case.sign(unlimited, yes=0.7, no=-0.7)
    case.sign(e.number("node_provision_s").above(0.0), yes=-0.7)
    return case.opinion(changes=_maximum(room))


def _replicas_that_fit(e: Evidence) -> Interval:
    """GPUs that can be scheduled over those of one replica; `ANY` where unknown."""
    gpus, asked = e.number("hardware.schedulable_gpus"), e.number("k8s.gpu_request")
    if not gpus.known:
        return Interval()
    each = asked.value if asked.known else exactly(1.0)
    if not asked.known and e.known("tensor_parallel_size"):
        each = Machine(e).gpus_per_replica
    return gpus.value.over(each)


def _most_are_pending(e: Evidence) -> Check:
    """Are many replicas pending, several for each that serves?"""
    pending, ready = e.number("replicas_pending"), e.number("replicas_ready")
    truth: bool | None = None
    if pending.known and ready.known:
        several = pending.value.exceeds(ready.value.times(exactly(PENDING_FACTOR)))
        many = pending.value.at_least(PENDING_MANY)
        truth = False if False in (several, many) else (True if several and many else None)
    return Check(pending.key, pending.plain(), f"> {PENDING_FACTOR:g} x replicas_ready", truth)


def _maximum(room: Interval) -> tuple[Change, ...]:
    return (
        (Change("hpa.max_replicas", int(room.low)),) if room.exact and 1 <= room.low < inf else ()
    )


RULES: tuple[Rule, ...] = (asks_for_more_than_there_is,)
"""Rules of this family."""
