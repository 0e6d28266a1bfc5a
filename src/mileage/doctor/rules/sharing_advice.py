"""Rules of GPUs that could be shared, or shared better."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower, share_lost

__all__ = ["RULES"]

SMALL_SHARE = 0.4
"""Share of a card that leaves room for a second pod of the same size, and a little more."""

CONTEXTS_MANY = 2.0
"""Processes on one card from which on their kernels take turns instead of running side by side."""


@rule(
    "SHARE004",
    cause="whole_gpu_for_small_pod",
    needs=("k8s.gpu_sharing", "k8s.gpu_request", "sm_active_ratio", "model.weights_gib"),
    fires={
        "model": {"params_b": 0.5, "dtype": "bf16"},
        "hardware": {"gpu": "H100", "count": 1, "memory_gb": 80},
        "settings": {"k8s.gpu_sharing": "none", "k8s.gpu_request": 1},
        "signals": {"sm_active_ratio": 0.12, "requests_running": 2, "requests_waiting": 0},
    },
    clear={
        "settings": {"k8s.gpu_sharing": "none", "k8s.gpu_request": 1},
        "signals": {"sm_active_ratio": 0.83},
    },
    silent={"settings": {"k8s.gpu_sharing": "none", "k8s.gpu_request": 1}},
)
def whole_card_for_a_small_pod(e: Evidence) -> Opinion:
    """A pod that needs a small part of a card holds all of it.

    ## Why it costs money
    The device plugin hands out whole cards unless sharing is configured. A small model then pays
    for compute and memory that nobody else may use.

    ## How it is told
    No sharing is configured; under load the SMs are active a small part of the time, and the
    weights take a small part of the memory. Memory in use says nothing: engines take it all.

    ## What to do
    MIG slices where the card has them, MPS or time slicing in the device plugin's configuration
    (`sharing.mps.resources`, `sharing.timeSlicing.resources`), with `--gpu-memory-utilization`
    lowered to the share; or put several models behind one engine.

    ## Risk
    Pods on one card share its memory bandwidth, with time slicing also its memory without any
    limit: one that grows ends the others with out of memory. MIG separates them and rounds each up
    to a slice. Device-plugin changes reschedule pods, so begin with one node.
    """
    case = Case()
    active = e.number("sm_active_ratio" if e.known("sm_active_ratio") else "gr_engine_active_ratio")
    small = both(active.all_below(SMALL_SHARE), e.number("requests_running").any_above(0.0))
    case.must(e.is_one_of("k8s.gpu_sharing", "none"))
    case.shows(both(small, _weights_are_small(e)), 3.5)
    case.refutes(active.any_above(SMALL_SHARE))
    case.refutes(e.number("requests_waiting").any_above(0.0))
    case.refutes(e.number("tensor_parallel_size").above(1.0))
    used = active.most
    waste = Interval(1.0 - min(used.high / SMALL_SHARE, 1.0), 1.0 - max(min(used.low, 1.0), 0.0))
    return case.opinion(
        "info",
        advice="Share the card: this pod keeps a small part of it busy.",
        changes=(Change("k8s.gpu_sharing", "mig"),),
        waste_ratio=waste if used.bounded else None,
    )


def _weights_are_small(e: Evidence) -> Check:
    machine = Machine(e)
    weights, memory = machine.weights_gib_per_gpu, machine.memory_gb
    limit = f"< {SMALL_SHARE:g} x the card's memory"
    if not weights.bounded or not memory.bounded or memory.low <= 0:
        return Check("model.weights_gib", None, limit, None)
    share = weights.times(exactly(1.0737)).over(memory)
    return Check("model.weights_gib", weights.plain(), limit, share.below(SMALL_SHARE))


@rule(
    "SHARE005",
    cause="mps_absent",
    needs=("k8s.gpu_sharing", "k8s.pods_on_gpu", "sm_active_ratio", "comparisons"),
    fires={
        "settings": {"k8s.gpu_sharing": "time_slicing", "k8s.pods_on_gpu": 6},
        "signals": {"sm_active_ratio": 0.22, "gpu_util_ratio": 0.97, "requests_waiting": 3},
    },
    clear={
        "settings": {"k8s.gpu_sharing": "mps", "k8s.pods_on_gpu": 6},
        "signals": {"sm_active_ratio": 0.8, "gpu_util_ratio": 0.97},
    },
    silent={"settings": {"k8s.gpu_sharing": "time_slicing", "k8s.pods_on_gpu": 6}},
)
def small_processes_take_turns(e: Evidence) -> Opinion:
    """Several small processes share a card by taking turns, so that most of it idles in each turn.

    ## Why it costs money
    Kernels of different processes do not run at the same time without MPS. A small kernel fills a
    few SMs, and the others wait for the next time slice.

    ## How it is told
    Time slicing with several pods; some kernel is nearly always resident although SMs are active a
    small part of the time, and there is more to do; or an A/B of time slicing and MPS.

    ## What to do
    `sharing.mps` in the device plugin's configuration (or `nvidia-cuda-mps-control -d`), with a
    memory limit for each client; MIG where faults of one client must not reach another.

    ## Risk
    All clients of MPS share one server process: a fatal fault of one (an illegal address) ends the
    kernels of all, and debuggers and some profilers do not attach. Without memory limits one client
    can take all memory. Not between tenants who must not reach each other.
    """
    case = Case()
    pods, copies = e.number("k8s.pods_on_gpu"), e.number("k8s.gpu_replicas_label")
    pairs = _turns_against_mps(e)
    active, util = e.number("sm_active_ratio"), e.number("gpu_util_ratio")
    case.shows(
        both(
            e.is_one_of("k8s.gpu_sharing", "time_slicing"),
            (pods if pods.known else copies).at_least(CONTEXTS_MANY),
            active.all_below(SMALL_SHARE),
            util.any_above(0.8),
        ),
        3.0,
    )
    case.shows(any_slower(pairs), 4.5)
    if any_slower(pairs).truth is not True:
        case.refutes(e.is_one_of("k8s.gpu_sharing", "none", "mps", "mig"))
    case.sign(e.number("requests_waiting").any_above(0.0), yes=0.5)
    return case.opinion(
        "warning" if any_slower(pairs).truth else "info",
        advice="Let the processes run side by side with MPS.",
        changes=(Change("k8s.gpu_sharing", "mps"),),
        waste_ratio=share_lost(pairs),
    )


def _turns_against_mps(e: Evidence) -> tuple[Contrast, ...]:
    pairs = contrasts(
        e,
        lambda arm: arm.get("k8s.gpu_sharing") == "time_slicing",
        lambda arm: arm.get("k8s.gpu_sharing") == "mps",
        "k8s.gpu_sharing",
    )
    return tuple(pair for pair in pairs if not pair.besides)


RULES: tuple[Rule, ...] = (whole_card_for_a_small_pod, small_processes_take_turns)
"""Rules of this family."""
