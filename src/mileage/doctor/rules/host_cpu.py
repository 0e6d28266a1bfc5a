"""Rules of the CPU quota: threads that the container has no cores for."""

from __future__ import annotations

from mileage.doctor.arms import Arm, Ratio
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import (
    any_served,
    gpu_idle,
    gpu_idle_share,
    gpu_saturated,
    has_media,
    no_gpu,
    part_of,
    slo_met,
)
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    loss_of_effect,
    speeds,
    with_more,
)

__all__ = ["RULES"]

THREADS_OVER_QUOTA = 2.0
"""Threads for each granted core from which they cannot but wait for one another. A pool of a
node's size in a small quota is 4 to 50 times too large."""

FAR_OVER_QUOTA = 4.0
"""Threads for each granted core at which they stand in one another's way whatever they do."""

THROTTLED_MIN = 0.02
"""Share of CFS periods throttled that shows: in one period of 100 ms the engine stands still for
the rest of it, longer than a decode step lasts."""

THROTTLED_MUCH = 0.1
"""Share of periods throttled at which every tenth period loses time, several in each request."""

AT_QUOTA = 0.9
"""Share of the granted cores in use from which the quota is as good as used up."""

OMP = "env.OMP_NUM_THREADS"
"""The variable that torch, OpenMP and BLAS libraries size their pools by."""


@rule(
    "CPU001",
    cause="cpu_thread_oversubscription",
    explains=(
        "engine_host_bound",
        "guided_decoding_cpu",
        "version_regression",
        "serial_sampling_cpu",
        "frontend_cpu_bound",
        "tokenizer_cpu_bound",
    ),
    needs=(
        "k8s.cpu_limit",
        "cpu_visible_count",
        "threads_per_process_count",
        "env.OMP_NUM_THREADS",
        "cpu_throttled_ratio",
        "cpu_cores_used",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm"},
        "settings": {"k8s.cpu_limit": 8, "env.OMP_NUM_THREADS": None},
        "signals": {
            "cpu_visible_count": 96,
            "cpu_throttled_ratio": 0.35,
            "gpu_util_ratio": 0.4,
            "requests_running": 12,
        },
    },
    clear={
        "settings": {"k8s.cpu_limit": 16, "env.OMP_NUM_THREADS": 8},
        "signals": {"cpu_visible_count": 96, "cpu_throttled_ratio": 0, "cpu_cores_used": 3},
    },
    silent={"settings": {"k8s.cpu_limit": 8}, "signals": {"gpu_util_ratio": 0.4}},
)
def threads_exceed_quota(e: Evidence) -> Opinion:
    """Thread pools are as large as the node, not as the container's share of it.

    ## Why it costs money
    Libraries start one thread for each CPU they see. In a container with a quota the threads use
    it up at once, and CFS stops the whole process for the rest of the period: the engine's loop
    stands still, and the GPU with it.

    ## How it is told
    Far more threads, or visible CPUs with OMP_NUM_THREADS not set, than the limit grants, and
    throttled periods or all granted cores in use; or a run with fewer threads that is faster.
    One full core without throttling is `engine_host_bound`. A saturated GPU, and CPU back ends
    that use their cores for the model itself, are not this.

    ## What to do
    Set `OMP_NUM_THREADS` (and `MKL_NUM_THREADS`, `RAYON_NUM_THREADS`, `TOKENIZERS_PARALLELISM`)
    to the granted cores, divided by the worker processes; or raise the CPU limit, or leave only
    the request.

    ## Risk
    Too few threads make the work slower that really is parallel: loading weights, tokenising, image
    processing. Raise the number by one or two if a start or long prompts take longer than before;
    the variables are read at the start of the process only.
    """
    case, limit = Case(), _limit(e)
    throttled = e.number("cpu_throttled_ratio").any_above(THROTTLED_MIN)
    unset, idle, used = e.is_unset(OMP), gpu_idle(e), _uses_all(e, limit)
    crowded, extreme = _too_many(e, limit, THREADS_OVER_QUOTA), _too_many(e, limit, FAR_OVER_QUOTA)
    fewer = with_more(e, OMP) + _unset_arms(e) + _thread_arms(e)
    stands = e.number("cpu_throttled_ratio").any_above(THROTTLED_MUCH)
    case.shows(both(crowded, either(throttled, used)), 4.5)
    case.shows(both(_too_many(e, limit, 1.0), stands, crowded.negated()), 3.5)
    case.shows(both(unset, idle, either(used, throttled)), 4.0)
    case.shows(both(either(throttled, part_of(_cores(e), limit, AT_QUOTA)), idle), 2.5)
    case.shows(both(extreme, either(unset, _many_threads(e, limit, FAR_OVER_QUOTA))), 2.6)
    case.shows(_node_crowded(e), 3.0)
    case.shows(effect_check(fewer, 0.9), 4.5)
    case.shows(effect_check(_less_quota(e), 0.8), 3.0)
    case.refutes(gpu_saturated(e))
    case.refutes(free_of_effect(fewer, 0.98))
    if not fewer:
        case.must(_served(e))
    if throttled.truth is not True and not fewer:
        case.refutes(no_gpu(e))
        case.refutes(_quota_free(e, limit))
    case.sign(e.logged(r"reducing torch parallelism from \d+ threads"), yes=-1.0)
    case.sign(idle, no=-1.0)
    case.sign(has_media(e), yes=-0.5)
    case.sign(slo_met(e), yes=-2.0)
    return case.opinion(
        advice="Size the thread pools by the granted cores, not by the node's.",
        changes=_thread_change(e, limit),
        waste_ratio=loss_of_effect(fewer) or (gpu_idle_share(e) if idle.truth else None),
    )


def _limit(e: Evidence) -> Quantity:
    limit = e.number("k8s.cpu_limit")
    return limit if limit.known and limit.value.low > 0 else Quantity("k8s.cpu_limit", "cores")


def _exceeds(threads: Quantity, limit: Quantity, factor: float) -> Check:
    truth = threads.most.exceeds(limit.value.times(Interval(factor, factor)))
    known = threads.known and limit.known
    shown = f"> {factor:g} x {limit.key} ({limit.value.shown()})"
    return Check(threads.key, threads.plain(), shown, truth if known else None)


def _many_threads(e: Evidence, limit: Quantity, factor: float) -> Check:
    return either(
        _exceeds(e.number("threads_per_process_count"), limit, factor),
        _exceeds(e.number(OMP), limit, factor),
    )


def _too_many(e: Evidence, limit: Quantity, factor: float) -> Check:
    """More threads than the quota: of the process, as set, or as the library would start."""
    seen = both(
        _exceeds(e.number("cpu_visible_count"), limit, factor),
        Check(OMP, e.number(OMP).plain(), "not set", not e.known(OMP)),
    )
    node = both(_exceeds(e.number("hardware.cpus"), limit, factor), e.is_unset(OMP))
    return either(_many_threads(e, limit, factor), seen, node)


def _served(e: Evidence) -> Check:
    """Is service looked at, and not only a start? Of a start the start-up rules speak."""
    phases = ("startup_graph_capture_s", "startup_compile_s", "startup_total_s")
    starting = any(e.known(key) for key in phases) and any_served(e).truth is not True
    return Check("requests_running", None, "something is served", None if starting else True)


def _cores(e: Evidence) -> Quantity:
    return e.number("cpu_cores_used")


def _uses_all(e: Evidence, limit: Quantity) -> Check:
    return either(
        part_of(_cores(e), limit, AT_QUOTA), e.number("cpu_util_ratio").any_above(AT_QUOTA)
    )


def _quota_free(e: Evidence, limit: Quantity) -> Check:
    """Is the quota not used up: never throttled, or far from all cores in use?"""
    never = e.number("cpu_throttled_ratio").at_most(0.0)
    spare = part_of(_cores(e), limit, 0.6).negated()
    if _uses_all(e, limit).truth:
        return Check("cpu_cores_used", _cores(e).plain(), "quota free", truth=False)
    return either(never, spare)


def _node_crowded(e: Evidence) -> Check:
    """Without a quota: more runnable threads than the node has CPUs, and all CPUs busy."""
    workers = Machine(e).gpus_per_replica
    cpus = e.number("cpu_visible_count")
    cpus = cpus if cpus.known else e.number("hardware.cpus")
    threads = e.number("threads_per_process_count")
    many = None
    if workers.bounded and cpus.known and threads.known:
        many = threads.value.times(workers).exceeds(cpus.value.times(Interval(2.0, 2.0)))
    crowd = Check(threads.key, threads.plain(), "x workers > 2 x CPUs", many)
    return both(crowd, e.number("cpu_util_ratio").any_above(AT_QUOTA), gpu_idle(e))


def _unset_arms(e: Evidence) -> tuple[Ratio, ...]:
    def unset(arm: Arm) -> bool | None:
        if OMP not in arm.values:
            return None
        return not arm.number(OMP).known

    return speeds(e, OMP, unset)


def _thread_arms(e: Evidence) -> tuple[Ratio, ...]:
    """Speed of arms seen with more threads over that of arms with fewer, nothing else varied."""
    found = []
    for comparison in e.comparisons:
        if not comparison.varied() <= {OMP}:
            continue
        for one, other in comparison.pairs():
            for more, less in ((one, other), (other, one)):
                threads = comparison.ratio("threads_per_process_count", more, less)
                speed = comparison.speed(more, less)
                if threads.value.above(1.0) and threads.known and speed.known:
                    found.append(speed)
    return tuple(found)


def _less_quota(e: Evidence) -> tuple[Ratio, ...]:
    def smaller(arm: Arm) -> bool | None:
        limits = [
            each.number("k8s.cpu_limit").value.high
            for comparison in e.comparisons
            for each in comparison.arms
            if each.number("k8s.cpu_limit").known
        ]
        mine = arm.number("k8s.cpu_limit")
        return mine.value.high < max(limits) if mine.known and limits else None

    return speeds(e, "k8s.cpu_limit", smaller)


def _thread_change(e: Evidence, limit: Quantity) -> tuple[Change, ...]:
    if not limit.known or not limit.value.exact:
        return ()
    workers = Machine(e).gpus_per_replica
    share = limit.value.low / max(workers.high if workers.bounded else 1.0, 1.0)
    return (Change(OMP, max(1, int(share))),)


RULES: tuple[Rule, ...] = (threads_exceed_quota,)
"""Rules of this family."""
