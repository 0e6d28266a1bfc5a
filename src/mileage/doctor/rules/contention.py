"""Rules of CPUs that others take: the engine's threads are ready to run, and wait."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

WAIT_RATIO = 0.2
"""Share of the time that the engine's most hindered thread is ready to run and has no core. A
thread that is alone on its core waits for some thousandths; a fifth of all time lost is what a user
sees in the time between tokens."""

OTHERS_CORES = 0.25
"""Less than a quarter of a core of foreign work does not take a fifth of a core from anyone."""


@rule(
    "CPU010",
    cause="cpu_thread_oversubscription",
    needs=("engine_run_queue_wait_ratio", "other_process_cpu_cores"),
    explains=("engine_host_bound", "max_num_seqs_cap"),
    fires={
        "signals": {
            "engine_run_queue_wait_ratio": 0.45,
            "other_process_cpu_cores": 1.6,
            "requests_running": 3,
        }
    },
    clear={"signals": {"engine_run_queue_wait_ratio": 0.01, "other_process_cpu_cores": 1.6}},
    silent={"signals": {"other_process_cpu_cores": 1.6}},
)
def others_take_the_engines_cpus(e: Evidence) -> Opinion:
    """Other processes run on the CPUs that the engine needs, so its threads stand in line.

    ## Why it costs money
    Every step has work on the CPU. While the thread that does it waits for a core, the GPU waits
    for the thread, and all requests of the batch wait for both.

    ## How it is told
    Linux counts the time that a thread was ready to run without running (schedstat). Where the
    engine's threads wait that way for a good part of the time, and processes other than the
    engine, its gateway and their clients use CPU meanwhile, these take it. Requests that wait for
    a slot then wait for slow steps: more slots would make them slower. A quota that cuts the
    engine's own container is another matter: there cpu_throttled_ratio is above 0.

    ## What to do
    Move the other work elsewhere, or pin the engine to cores of its own: `taskset`, `cpuset` in
    Docker, `cpuManagerPolicy: static` with whole-number CPU requests in Kubernetes.

    ## Risk
    Cores that are reserved for the engine are lost to all other pods of the node, and the static
    CPU manager needs a restart of the kubelet with its state file removed. Pinned to too few cores
    the engine starves of its own threads: leave it one for each worker and two more.
    """
    case = Case()
    wait = e.number("engine_run_queue_wait_ratio")
    case.must(e.number("other_process_cpu_cores").at_least(OTHERS_CORES), yes=1.0)
    case.shows(wait.at_least(WAIT_RATIO), 3.0)
    case.sign(e.number("cpu_throttled_ratio").above(0.0), no=0.5)
    case.refutes(e.number("requests_running").at_most(0.0))
    return case.opinion(
        waste_ratio=Interval(0.0, wait.value.clipped(0.0, 1.0).high) if wait.known else None
    )


RULES: tuple[Rule, ...] = (others_take_the_engines_cpus,)
"""Rules of this family."""
