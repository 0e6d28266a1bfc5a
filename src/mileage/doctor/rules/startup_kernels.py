"""Rules of slow starts: kernels that are compiled or tuned again, and a CPU that is full."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import no_gpu
from mileage.doctor.start_phases import START_TIMES, StartPhases, cpu_saturated

__all__ = ["RULES"]

NOTICED_S = 20.0
"""A phase that is shorter than this is lost beside placing a pod and pulling its image."""

LONG_S = 40.0
"""Placing a pod and pulling its image take about as long: from here on a phase delays it."""

MINUTE_S = 60.0
"""Profiling memory and running each kernel once takes seconds: a minute is compiling or tuning."""

SLOWER = 1.3
"""A start that takes so much longer is slower: starts scatter by 10 to 20 %."""

JIT_LINES = (
    r"jit.{0,20}compil|cold cache|compil\w+ .{0,30}kernel|DeepGEMM (JIT|warmup)|DEEPGEMM"
    r"|autotun\w+ process starts|autotuner|Autotuning|\bninja\b|\bnvcc\b|flashinfer\.jit"
)


@rule(
    "START003",
    cause="cold_start_kernel_cache",
    needs=(
        "startup_kv_profile_s",
        "startup_silent_s",
        "startup_first_response_s",
        "startup_engine_init_s",
        "storage.kernel_cache",
        "logs",
        "comparisons",
    ),
    fires={
        "settings": {"storage.kernel_cache": "empty"},
        "signals": {
            "startup_weights_s": 25,
            "startup_compile_s": 30,
            "startup_kv_profile_s": 190,
        },
    },
    clear={"signals": {"startup_weights_s": 90, "startup_kv_profile_s": 4}},
    silent={"settings": {"storage.kernel_cache": "empty"}},
)
def kernels_are_built_at_each_start(e: Evidence) -> Opinion:
    """Kernels are compiled or tuned again at each start, for their cache is empty.

    ## Why it costs money
    FlashInfer, DeepGEMM, Triton and CUTLASS build kernels for the card at their first use, and
    tune some by trial: minutes in which the card is paid for, at every start of every pod.

    ## How it is told
    The phase of profiling and warm-up, or one long gap in the log, is longer than loading and
    compiling; the kernel cache is empty; or graphs are off and the start is no shorter; or the
    first answer comes long after the engine is ready. Graphs are `cold_start_compile_capture`.

    ## What to do
    Keep the caches on a volume that outlives the pod (`~/.cache/flashinfer`, `~/.triton`,
    `~/.cache/vllm`, `DG_JIT_CACHE_DIR`), install kernels that are built already
    (`flashinfer-jit-cache`), or warm up while the image is built (SGLang
    `python -m sglang.compile_deep_gemm`).

    ## Risk
    Kernels that were tuned on another card run, and slowly: key the cache by GPU model, driver and
    engine version. Images with all kernels baked in are some GiB larger, which a cold node pays for
    by pulling.
    """
    case, start = Case(), StartPhases(e)
    empty = e.is_one_of("storage.kernel_cache", "empty")
    logged = e.logged(JIT_LINES)
    eager = e.is_true("enforce_eager")
    long = either(
        start.kernels.at_least(NOTICED_S),
        start.silent.at_least(NOTICED_S),
        start.engine_init.at_least(MINUTE_S),
        start.total.at_least(2 * MINUTE_S),
        _late_first_answer(e, start),
    )
    case.shows(both(start.kernels.at_least(LONG_S), start.largest(start.kernels)), 3.3)
    case.shows(start.kernels.at_least(MINUTE_S), 2.5)
    case.shows(_gap(start), 2.6)
    case.shows(both(empty, long), 3.3)
    case.shows(both(logged, long), 2.6)
    case.shows(both(eager, start.engine_init.at_least(MINUTE_S)), 2.6)
    case.shows(_late_first_answer(e, start), 2.2)
    case.shows(_arms_differ(e), 4.5)
    case.refutes(e.is_one_of("storage.kernel_cache", "populated"))
    case.refutes(both(start.kernels.below(NOTICED_S), start.silent.below(NOTICED_S)))
    case.refutes(start.smaller(start.kernels))
    case.refutes(no_gpu(e))
    late, ready = _late_first_answer(e, start), start.engine_init
    if late.truth is not True:  # the engine was ready soon: the gap lies before it
        case.refutes(both(ready.below(NOTICED_S), start.kernels.below(NOTICED_S)))
    case.sign(_eager_does_not_help(e), yes=2.0)
    case.sign(both(eager, long), yes=0.7)
    case.sign(either(*cpu_saturated(e)), yes=-1.0)
    return case.opinion(
        advice="Keep the kernel caches on a volume that outlives the pod, or fill them while the"
        " image is built: the next start then loads what this one builds.",
        changes=(Change("storage.kernel_cache", "populated"),),
    )


def _gap(start: StartPhases) -> Check:
    """A long gap in the log that no other known phase accounts for."""
    known = [n for n in (start.weights, start.graphs) if n.known]
    longer = [start.silent.exceeds(other) for other in known]
    return both(start.silent.at_least(MINUTE_S), *longer)


def _late_first_answer(e: Evidence, start: StartPhases) -> Check:
    first = e.number("startup_first_response_s")
    return first.where(
        f"{NOTICED_S:g} s after it is ready",
        lambda at: at.minus(start.total.value).at_least(NOTICED_S) if start.total.known else None,
    )


def _arms_differ(e: Evidence) -> Check:
    def has_empty(arm: Arm) -> bool:
        return bool(arm.get("storage.kernel_cache") == "empty")

    def has_filled(arm: Arm) -> bool:
        return bool(arm.get("storage.kernel_cache") == "populated")

    pairs = contrasts(e, has_empty, has_filled, "storage.kernel_cache")
    told = [pair.ratio_of(*START_TIMES).above(SLOWER) for pair in pairs]
    return either(*told) if told else Check("comparisons", None, "of kernel caches", None)


def _eager_does_not_help(e: Evidence) -> Check:
    """A start without graphs that takes nearly as long as one with them."""
    pairs = contrasts(
        e,
        lambda arm: arm.get("enforce_eager") is True,
        lambda arm: arm.get("enforce_eager") is False,
        "enforce_eager",
    )
    told = [pair.ratio_of(*START_TIMES).above(1.0 / SLOWER) for pair in pairs]
    return either(*told) if told else Check("comparisons", None, "graphs off, no faster", None)


CAPTURE_LONG_S = 100.0
"""Capturing some tens of batch sizes takes 5 to 60 s on any card: it launches each kernel once."""

CAPTURE_STUCK_S = 300.0
"""Ten times the usual: nothing but a CPU that does not run makes it so long."""

PHASE_LONG_S = 300.0
"""Other phases from which on they are suspect on a full CPU."""

IMPORT_LONG_S = 60.0
"""Importing the engine's Python packages takes 5 to 20 s on a free core."""

CPU_KEYS = ("k8s.cpu_limit", "k8s.cpu_request", "hardware.cpus", "env.OMP_NUM_THREADS")


@rule(
    "START004",
    cause="startup_cpu_starved",
    needs=(
        "startup_graph_capture_s",
        "startup_import_s",
        "cpu_util_ratio",
        "cpu_throttled_ratio",
        "k8s.cpu_limit",
        "gpu_util_ratio",
        "comparisons",
    ),
    explains=(
        "cold_start_compile_capture",
        "slow_weight_load",
        "cold_start_kernel_cache",
    ),
    fires={
        "settings": {"k8s.cpu_limit": 2, "tensor_parallel_size": 4},
        "signals": {"startup_graph_capture_s": 640, "cpu_util_ratio": 0.99, "gpu_util_ratio": 0},
    },
    clear={"signals": {"startup_graph_capture_s": 22, "cpu_util_ratio": 0.3}},
    silent={"signals": {"cpu_util_ratio": 0.99}},
)
def start_waits_for_cpu(e: Evidence) -> Opinion:
    """A phase of the start takes many times longer, for the CPU is full.

    ## Why it costs money
    Tracing, compiling and capturing graphs are CPU work: the cards wait for it, and are paid for.

    ## How it is told
    Capture of minutes (it usually takes seconds), or imports and compiling of minutes, while the
    CPUs are in full use, the quota throttles, or there are fewer cores than processes; the cards
    do nothing. With cores to spare it is `cold_start_compile_capture`, with a disk that is waited
    for `slow_weight_load`.

    ## What to do
    Give the pod one core per tensor-parallel worker and two more (`resources.requests.cpu`, and
    no lower limit), keep other pods off these cores, and set `OMP_NUM_THREADS`.

    ## Risk
    Requests of CPU that are rarely used keep other pods off the node and may leave the pod itself
    unschedulable. Without a limit the engine's spinning threads can take cores from its neighbours:
    watch their throttling after the change.
    """
    case, start = Case(), StartPhases(e)
    full = either(*cpu_saturated(e))
    long = either(
        start.capture.at_least(CAPTURE_LONG_S),
        e.number("startup_import_s").at_least(IMPORT_LONG_S),
        start.graphs.at_least(PHASE_LONG_S),
        start.kernels.at_least(PHASE_LONG_S),
        start.engine_init.at_least(PHASE_LONG_S),
        start.total.at_least(2 * PHASE_LONG_S),
        start.silent.at_least(PHASE_LONG_S),
        start.weights.at_least(PHASE_LONG_S),
    )
    case.shows(both(start.capture.at_least(CAPTURE_LONG_S), full), 4.0)
    case.shows(both(long, full), 3.0)
    case.shows(both(long, _few_cores(e)), 2.8)
    case.shows(start.capture.at_least(CAPTURE_STUCK_S), 2.5)
    case.shows(_more_cores_help(e), 4.5)
    case.refutes(both(_idle(e), _unthrottled(e)))
    case.refutes(both(start.capture.below(CAPTURE_LONG_S), long.negated()))
    case.sign(e.number("gpu_util_ratio").all_below(0.05), yes=0.7)
    case.sign(e.number("io_wait_ratio").above(0.2), yes=-2.5)
    return case.opinion(advice=_cpu_advice(e), changes=_cpu_changes(e))


def _idle(e: Evidence) -> Check:
    return e.number("cpu_util_ratio").all_below(0.6)


def _unthrottled(e: Evidence) -> Check:
    throttled = e.number("cpu_throttled_ratio")
    return throttled.at_most(0.0) if throttled.known else _idle(e)


def _workers(e: Evidence) -> int:
    width = e.number("tensor_parallel_size").value
    return int(width.low) if width.exact and 1 <= width.low < 1e6 else 1


def _few_cores(e: Evidence) -> Check:
    """Fewer cores than processes that work at the same time: workers, and the engine's core."""
    words = f"fewer than {_workers(e) + 1} processes need"
    limit, cores = e.number("k8s.cpu_limit"), e.number("hardware.cpus")
    needed = _workers(e) + 1.0
    return either(
        limit.where(words, lambda value: value.below(needed)),
        cores.where(words, lambda value: value.below(needed)),
    )


def _more_cores_help(e: Evidence) -> Check:
    """Starts of arms that differ in cores alone, the one with fewer much longer."""
    told: list[Check] = []
    for pair in contrasts(e, lambda arm: True, lambda arm: True, *CPU_KEYS):
        fewer = any(
            pair.other.number(key).value.exceeds(pair.one.number(key).value) for key in CPU_KEYS[:3]
        )
        times = START_TIMES[:-1] if fewer else ()
        ratio = pair.ratio_of(*times) if times else None
        if ratio is not None and ratio.known and not pair.besides:
            told.append(ratio.above(SLOWER))
    return either(*told) if told else Check("comparisons", None, "starts with more cores", None)


def _cpu_advice(e: Evidence) -> str:
    return (
        f"Give the start at least {_workers(e) + 2} cores of its own (one per worker, and two for"
        " the engine and its front end), by request, with no lower limit."
    )


def _cpu_changes(e: Evidence) -> tuple[Change, ...]:
    cores = float(_workers(e) + 2)
    limited = e.number("k8s.cpu_limit").below(cores).truth
    raised = (Change("k8s.cpu_limit", cores),) if limited else ()
    return (Change("k8s.cpu_request", cores), *raised)


RULES: tuple[Rule, ...] = (kernels_are_built_at_each_start, start_waits_for_cpu)
"""Rules of this family."""
