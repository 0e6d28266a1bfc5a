"""Rules of slow starts: reading weights, and compiling and capturing graphs."""

from __future__ import annotations

from mileage.doctor.arms import UNKNOWN_RATIO, Arm, Ratio
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.start_phases import START_TIMES, StartPhases, cpu_saturated

__all__ = ["RULES"]

NOTICED_S = 20.0
"""A phase that is shorter than this is lost beside placing a pod and pulling its image."""

LONG_S = 40.0
"""Placing a pod and pulling its image take about as long: from here on a phase delays it."""

MANY_TIMES = 3.0
"""A phase that takes so many times what loading takes is what the start consists of."""

MINUTES_S = 120.0
"""From here on a phase is long whatever the model: the largest part of any planned start."""

SLOW_READ_GIB_PER_S = 0.5
"""A SATA disk reads that fast; NVMe and good network storage several times faster."""

FAST_READ_GIB_PER_S = 2.0
"""NVMe disks of cloud machines read 2 to 7 GB/s: weights that come at this rate take long because
there are many of them."""

SLOW_DISK_MB_PER_S = 500.0
"""The same for the rate that the disk itself reports."""

IO_WAIT = 0.2
"""Share of the time in which CPUs only wait for the disk."""

SLOWER = 1.3
"""A start that takes so much longer is slower: starts scatter by 10 to 20 %."""

NETWORK_FS = (
    *("nfs", "efs", "lustre", "ceph", "gpfs", "beegfs", "gluster", "s3", "gcs", "fuse", "smb"),
    *("cifs", "juicefs", "azure", "network", "nas", "oss", "hdfs", "remote", "hub", "http"),
)

STORAGE_KEYS = (
    "safetensors_load_strategy",
    "storage.weights_fs",
    "storage.page_cache",
)

GRAPH_KEYS = ("storage.compile_cache", "enforce_eager", "env.VLLM_SKIP_P2P_CHECK")


@rule(
    "START001",
    cause="slow_weight_load",
    needs=(
        "startup_weights_s",
        "model.weights_gib",
        "storage.weights_fs",
        "safetensors_load_strategy",
        "startup_total_s",
        "comparisons",
    ),
    fires={
        "model": {"params_b": 70, "dtype": "fp8", "weights_gib": 66},
        "settings": {"storage.weights_fs": "nfs"},
        "signals": {"startup_weights_s": 540, "startup_compile_s": 50},
    },
    clear={"signals": {"startup_weights_s": 9, "startup_compile_s": 50}},
    silent={"settings": {"storage.weights_fs": "nfs"}},
)
def weights_load_slowly(e: Evidence) -> Opinion:
    """Reading the weights is most of the start.

    ## Why it costs money
    A card is paid for from the moment its machine is there. Slow starts also force replicas to be
    kept in reserve, for new ones come too late.

    ## How it is told
    Loading weights is the longest phase, or much slower than a disk reads (gibibytes of weights
    over seconds), on network storage or by `mmap` above all. Compiling that takes longer is
    `cold_start_compile_capture`; where the CPU is full the phase is `startup_cpu_starved`.

    ## What to do
    Keep weights on local NVMe or in the page cache of the node; on network storage read them in
    one go: vLLM `--safetensors-load-strategy eager` (later releases: `prefetch`) or
    `--load-format runai_streamer`, SGLang
    `--model-loader-extra-config '{"enable_multithread_load": true}'`.

    ## Risk
    Eager and streaming loaders hold much of the checkpoint in host memory at once: a pod with a
    tight limit is killed while it loads. A copy on local disks must be renewed with each model
    version, or replicas serve different weights.
    """
    case, start = Case(), StartPhases(e)
    long = start.weights.at_least(LONG_S)
    network = e.contains("storage.weights_fs", *NETWORK_FS)
    lazy = e.is_one_of("safetensors_load_strategy", "lazy")
    waits = e.number("io_wait_ratio").above(IO_WAIT)
    disk = both(
        e.number("disk_read_mb_per_s").above(0.0),
        e.number("disk_read_mb_per_s").below(SLOW_DISK_MB_PER_S),
    )
    case.shows(both(long, start.largest(start.weights)), 3.0)
    slowly = _read_slowly(e, start)
    case.shows(both(start.weights.at_least(NOTICED_S), slowly), 3.0)
    case.sign(slowly, no=-1.0)
    case.shows(both(long, network), 2.8)
    case.shows(both(long, either(waits, disk)), 2.6)
    case.shows(start.weights.at_least(MINUTES_S), 2.4)
    reads = either(network, waits, disk)
    case.shows(both(reads, start.total.at_least(2 * MINUTES_S)), 2.3)
    case.shows(_longer_in_arms(e, STORAGE_KEYS).above(SLOWER), 4.5)
    case.shows(_far_longer_elsewhere(e), 3.0)
    case.refutes(start.weights.below(NOTICED_S))
    case.refutes(start.smaller(start.weights))
    if not e.comparisons:
        case.refutes(_read_fast(e, start))
    case.sign(both(network, lazy), yes=1.0)
    case.sign(e.is_one_of("storage.page_cache", "hot"), yes=-2.0)
    case.sign(e.is_one_of("storage.page_cache", "cold"), yes=0.5)
    case.sign(either(*cpu_saturated(e)), yes=-2.5)
    return case.opinion(advice=_load_advice(e, start), changes=_load_changes(e))


def _read_slowly(e: Evidence, start: StartPhases) -> Check:
    weights, took = Machine(e).weights_gib, start.weights
    words = f"slower than {SLOW_READ_GIB_PER_S:g} GiB/s"
    if not weights.bounded:
        return Check("model.weights_gib", None, words, None)
    return took.where(
        f"{words} for {weights.shown()} GiB",
        lambda value: weights.over(value).below(SLOW_READ_GIB_PER_S),
    )


def _read_fast(e: Evidence, start: StartPhases) -> Check:
    """Do weights, of a size that is stated, come as fast as good storage gives them?"""
    weights, words = e.number("model.weights_gib"), f"at {FAST_READ_GIB_PER_S:g} GiB/s or faster"
    if not weights.known:
        return Check(weights.key, None, words, None)
    return start.weights.where(
        words, lambda value: weights.value.over(value).at_least(FAST_READ_GIB_PER_S)
    )


def _load_advice(e: Evidence, start: StartPhases) -> str:
    where = e.text("storage.weights_fs")
    took = f"Loading takes {start.weights.value.shown()} s" if start.weights.known else "It loads"
    return (
        f"{took}{f' from {where}' if where else ''}: keep the weights on local NVMe or in the"
        " node's page cache, and read them in large pieces by several threads."
    )


def _load_changes(e: Evidence) -> tuple[Change, ...]:
    if (e.text("engine.name") or "vllm").startswith("vllm") and not e.is_one_of(
        "safetensors_load_strategy", "eager"
    ).truth:
        return (Change("safetensors_load_strategy", "eager"),)
    return ()


def _longer_in_arms(e: Evidence, keys: tuple[str, ...]) -> Ratio:
    """The longest start over the shortest, of arms that differ in `keys` alone."""
    best = UNKNOWN_RATIO
    for pair in contrasts(e, _anything, _anything, *keys):
        ratio = pair.ratio_of(*START_TIMES)
        differs = any(pair.one.get(key) != pair.other.get(key) for key in keys)
        if ratio.known and differs and not pair.besides:
            best = ratio if ratio.value.middle > best.value.middle else best
    return best


def _far_longer_elsewhere(e: Evidence) -> Check:
    """Does loading take many times what it takes in another arm, and more than is noticed?"""
    told = [
        both(
            pair.ratio("startup_weights_s").at_least(MANY_TIMES),
            pair.one.number("startup_weights_s").at_least(LONG_S),
        )
        for pair in contrasts(e, _anything, _anything, *STORAGE_KEYS)
        if pair.ratio("startup_weights_s").known and not pair.besides
    ]
    return either(*told) if told else Check("comparisons", None, "loading elsewhere", None)


def _anything(arm: Arm) -> bool:
    return True


@rule(
    "START002",
    cause="cold_start_compile_capture",
    needs=(
        "startup_compile_s",
        "startup_dynamo_s",
        "startup_graph_capture_s",
        "startup_p2p_check_s",
        "startup_weights_s",
        "startup_engine_init_s",
        "storage.compile_cache",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm"},
        "signals": {
            "startup_weights_s": 14,
            "startup_dynamo_s": 11,
            "startup_compile_s": 48,
            "startup_graph_capture_s": 35,
        },
    },
    clear={"signals": {"startup_weights_s": 240, "startup_compile_s": 30}},
    silent={"settings": {"storage.compile_cache": "empty"}},
)
def graphs_are_built_at_each_start(e: Evidence) -> Opinion:
    """Compiling, capturing CUDA graphs and checks are most of the start.

    ## Why it costs money
    The card is paid for while the CPU compiles what an earlier start has compiled already.

    ## How it is told
    Tracing, `torch.compile`, capture and the check of links take longer together than loading the
    weights, and longer than warming kernels up (`cold_start_kernel_cache`). A start with an empty
    cache, or with graphs, that is slower than one without settles it. Capture of several minutes
    on a full CPU is `startup_cpu_starved`.

    ## What to do
    Keep vLLM's cache (`VLLM_CACHE_ROOT`, `~/.cache/vllm/torch_compile_cache`) on a volume that
    outlives the pod or bake it into the image; capture fewer sizes (`--cuda-graph-sizes`, SGLang
    `--cuda-graph-max-bs`); set `VLLM_SKIP_P2P_CHECK=1` on machines that are known.

    ## Risk
    A cache from another version, card or driver is mostly detected and rebuilt, but one that
    several pods write at once can be damaged: give each version its own directory, and delete it
    when a start fails strangely. Fewer captured sizes leave batches between them padded or eager;
    without the P2P check a broken link shows only later, as a hang.
    """
    case, start = Case(), StartPhases(e)
    eager = e.is_true("enforce_eager")
    long = _counts(start, start.graphs)
    empty = e.is_one_of("storage.compile_cache", "empty")
    init = both(
        start.engine_init.at_least(NOTICED_S), start.engine_init.exceeds(start.weights), _off(eager)
    )
    case.shows(both(long, start.largest(start.graphs)), 3.3)
    case.shows(both(long, start.alone(start.graphs)), 2.5)
    case.shows(both(long, empty), 2.8)
    if not start.graphs.known and not start.kernels.known:
        case.shows(init, 2.4)
    case.shows(_longer_in_arms(e, GRAPH_KEYS).above(SLOWER), 4.5)
    case.refutes(start.graphs.below(NOTICED_S))
    case.refutes(start.smaller(start.graphs))
    case.sign(eager, yes=-3.0)
    case.sign(e.number("env.VLLM_SKIP_P2P_CHECK").at_most(0), yes=0.3)
    return case.opinion(advice=_graph_advice(start), changes=_graph_changes(e))


def _counts(start: StartPhases, phase: Quantity) -> Check:
    """Does a phase delay the pod, or take many times what loading takes?"""
    many = both(phase.at_least(NOTICED_S), phase.exceeds(start.weights, MANY_TIMES))
    return either(phase.at_least(LONG_S), many)


def _off(eager: Check) -> Check:
    """Are graphs built? Where nothing is said they are: that is every engine's default."""
    return eager.said("off") if eager.truth else Check("enforce_eager", None, "off", True)


def _graph_advice(start: StartPhases) -> str:
    took = start.graphs.value if start.graphs.known else start.engine_init.value
    return (
        f"Building graphs takes {took.shown()} s of each start: keep the compiler's cache on a"
        " volume that outlives the pod, and capture only the batch sizes that occur."
    )


def _graph_changes(e: Evidence) -> tuple[Change, ...]:
    checked = e.number("startup_p2p_check_s").at_least(NOTICED_S).truth
    skip = (Change("env.VLLM_SKIP_P2P_CHECK", 1),) if checked else ()
    return (Change("storage.compile_cache", "populated"), *skip)


RULES: tuple[Rule, ...] = (weights_load_slowly, graphs_are_built_at_each_start)
"""Rules of this family."""
