"""Rules of device metrics that do not mean what they seem to say."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import any_served, no_gpu, nothing_asked, on_mig

__all__ = ["RULES"]

CORE_SPINS = 0.9
"""Cores of a process that waits in a loop: one core is 1.0."""

GPU_SPINS = 0.5
"""Utilisation of a card without a request above which something runs on it."""

POWER_IDLE = 0.45
"""Share of the power limit that a card at rest, or one kernel that only waits, stays below."""

POWER_WORKS = 0.7
"""Share of the power limit that only real work draws; a waiting kernel draws half at most."""

FRESH_S = 300.0
"""Age below which a process may still compile and capture, without requests."""

UNSUPPORTED_LOGGED = (
    r"not collecting dcp metrics|nvml_error_not_supported|dcgm\w*.*not supported|"
    r"profiling (module|metrics?).*(not|un)[ -]?(supported|loaded|enabled)|"
    r"gpu-?util\w*.*(n/a|not supported)"
)
"""What NVML, DCGM and its exporter write of metrics that a device does not have."""

DEVICE_WIDE = ("gpu_util_ratio", "gr_engine_active_ratio", "sm_active_ratio", "power_w")
"""Metrics that are the device's: pods of one card see the same number."""

PROFILED = ("gr_engine_active_ratio", "sm_active_ratio", "dram_active_ratio")
"""DCGM's profiling metrics, which work on MIG slices too."""


@rule(
    "ATTR001",
    cause="shared_gpu_attribution",
    needs=("gpu_util_equal_across_pods", "k8s.gpu_sharing", "k8s.pods_on_gpu"),
    fires={
        "settings": {"k8s.gpu_sharing": "time_slicing", "k8s.pods_on_gpu": 3},
        "signals": {"gpu_util_equal_across_pods": True},
    },
    clear={
        "settings": {"k8s.gpu_sharing": "time_slicing"},
        "signals": {"gpu_util_equal_across_pods": False},
    },
    silent={"settings": {"k8s.gpu_sharing": "time_slicing", "k8s.pods_on_gpu": 3}},
)
def card_is_counted_for_each_pod(e: Evidence) -> Opinion:
    """The utilisation of a whole card is counted for each of the pods that share it.

    ## Why it costs money
    Usage of the pods adds up to a multiple of the card. An idle pod is charged, and scaled, for
    its neighbour's work.

    ## How it is told
    All pods of a time-sliced or MPS card report the same utilisation: the device's, which is all
    that NVML and DCGM know there. MIG slices are devices of their own.

    ## What to do
    Attribute by process: NVML's per-process utilisation (`nvidia-smi pmon`), the sharing layer's
    own metrics (HAMi), or GPU time per request from the gateway's ledger. Never sum the device's
    metric over pods.

    ## Risk
    Per-process utilisation is sampled (about once a second) and does not work under MIG, in some
    containers without the host's PID namespace, and with older drivers: short bursts are missed.
    Dashboards and alerts on the summed figure fall at the change.
    """
    case = Case()
    shared = e.is_one_of("k8s.gpu_sharing", "time_slicing", "mps", "hami")
    several = either(
        e.number("k8s.pods_on_gpu").above(1.0), e.number("k8s.gpu_replicas_label").above(1.0)
    )
    equal = e.is_true("gpu_util_equal_across_pods")
    case.shows(both(equal, either(shared, several)), 4.0)
    case.shows(equal, 2.5)
    if not e.known("gpu_util_equal_across_pods"):
        case.shows(both(either(shared, several), _units_equal(e)), 2.8)
    case.refutes(e.is_false("gpu_util_equal_across_pods"))
    case.refutes(on_mig(e))
    case.refutes(e.number("k8s.pods_on_gpu").at_most(1.0))
    return case.opinion(advice="Attribute by process or by request, not by the device's metric.")


def _units_equal(e: Evidence) -> Check:
    """Are the values of several pods on one card all alike?"""
    cards = e.number("hardware.count")
    several = either(cards.above(1.0), e.number("tensor_parallel_size").above(1.0))
    one_card = Check(cards.key, cards.plain(), "one card", not several.truth)
    same = either(*(_alike(e.number(key)) for key in DEVICE_WIDE))
    return both(same, one_card)


def _alike(values: Quantity) -> Check:
    truth = None
    if len(values.units) >= 2 and all(part.exact for part in values.units):
        first = values.units[0].low
        # Cards at rest, and cards at their limit, are alike without being the same card.
        truth = len({part.low for part in values.units}) == 1 and first not in (0.0, 1.0)
    return Check(values.key, values.plain(), "alike for all pods", truth)


@rule(
    "METR001",
    cause="metric_not_supported",
    needs=(
        "gpu_util_ratio",
        "hardware.mig_profile",
        "k8s.gpu_sharing",
        "gr_engine_active_ratio",
        "requests_running",
        "output_tokens_per_s",
        "logs",
    ),
    fires={
        "hardware": {"gpu": "H100", "mig_profile": "3g.40gb"},
        "signals": {"gpu_util_ratio": 0, "requests_running": 6, "output_tokens_per_s": 240},
    },
    clear={"signals": {"gpu_util_ratio": 0.4, "requests_running": 6}},
    silent={"hardware": {"gpu": "H100"}, "signals": {"gpu_util_ratio": 0}},
)
def metric_reads_zero(e: Evidence) -> Opinion:
    """A metric reads 0 or nothing because the device, as it is set up, does not support it.

    ## Why it costs money
    Scalers remove replicas that are at work, idle reports name busy cards, and alarms never ring.

    ## How it is told
    NVML's utilisation is not defined for MIG slices and reads 0 there; or it reads 0 while tokens
    come out; or profiling metrics are 0 while the card is busy. A card that is really idle reads
    0 as well: then nothing runs, and that is `idle_capacity`.

    ## What to do
    Read `DCGM_FI_PROF_GR_ENGINE_ACTIVE`, `DCGM_FI_PROF_SM_ACTIVE` and
    `DCGM_FI_PROF_DRAM_ACTIVE` in place of `DCGM_FI_DEV_GPU_UTIL` (switch them on in
    dcgm-exporter's counters file); scale on the engine's own queue.

    ## Risk
    Profiling counters need DCGM's privileges, cannot be read by two at once (Nsight and
    dcgm-exporter exclude each other), and some are missing on consumer cards. Alerts and
    autoscalers on the old metric must be moved first, or they fall silent.
    """
    case = Case()
    util, served, mig = e.number("gpu_util_ratio"), any_served(e), on_mig(e)
    zero = util.where("is 0", lambda value: value.at_most(0.0))
    busy_elsewhere = either(*(e.number(key).above(0.05) for key in PROFILED))
    others = either(*(_reads_zero(e, key) for key in PROFILED))
    working = either(util.above(GPU_SPINS), served)
    case.shows(both(zero, mig), 3.2)
    case.shows(both(zero, either(served, busy_elsewhere), _computes_on_gpu(e)), 3.0)
    case.shows(both(others, working, _computes_on_gpu(e)), 2.8)
    case.shows(both(e.number("power_w").at_most(0.0), working), 2.5)
    memory = e.number("gpu_mem_used_gb").at_most(0.0)
    case.shows(both(memory, working, _computes_on_gpu(e)), 2.6)
    case.shows(e.logged(UNSUPPORTED_LOGGED), 3.0)
    case.sign(both(zero, mig, served), yes=1.0)
    case.sign(both(nothing_asked(e), served.negated()), yes=-1.5)
    case.refutes(both(mig, busy_elsewhere))
    if others.truth is not True:
        case.refutes(util.above(0.0))
    return case.opinion(
        advice="Read DCGM's profiling metrics (GR_ENGINE_ACTIVE, SM_ACTIVE) in place of it."
    )


def _reads_zero(e: Evidence, key: str) -> Check:
    return e.number(key).where("is 0", lambda value: value.at_most(0.0))


def _computes_on_gpu(e: Evidence) -> Check:
    """Is there a card, as far as anything tells? llama.cpp may leave it unused."""
    left_unused = "llama" in (e.text("engine.name") or "")
    on_cpu = no_gpu(e).truth is True or left_unused
    return Check("hardware.gpu", e.text("hardware.gpu"), "computes on the GPU", not on_cpu)


@rule(
    "SPIN001",
    cause="idle_busy_spin",
    explains=("idle_capacity",),
    needs=(
        "requests_running",
        "requests_waiting",
        "gpu_util_ratio",
        "worker_process_cpu_ratio",
        "engine_process_cpu_ratio",
        "power_w",
    ),
    fires={
        "engine": {"name": "vllm", "version": "0.8.3"},
        "settings": {"tensor_parallel_size": 4},
        "signals": {
            "requests_running": 0,
            "requests_waiting": 0,
            "worker_process_cpu_ratio": [1.0, 1.0, 0.99, 1.0],
            "output_tokens_per_s": 0,
        },
    },
    clear={
        "signals": {
            "requests_running": 14,
            "requests_waiting": 0,
            "worker_process_cpu_ratio": [1.0, 1.0],
        }
    },
    silent={"signals": {"requests_running": 0, "requests_waiting": 0, "requests_per_s": 0}},
)
def processes_spin_without_work(e: Evidence) -> Opinion:
    """Utilisation is high with no request at all: processes, or kernels, only wait in a loop.

    ## Why it costs money
    A spinning core draws power and is missing to others, and utilisation that never falls keeps
    a scaler from removing the replica.

    ## How it is told
    Nothing runs and nothing waits, no token comes out, and yet a core per worker is full or the
    card reads busy; its power is that of a card at rest. With requests the same full core may be
    `engine_host_bound`; real load of a neighbour on a shared card draws power.

    ## What to do
    vLLM: upgrade, and set `VLLM_SLEEP_WHEN_IDLE=1`. SGLang: `--sleep-on-idle`. NCCL kernels that
    wait count as utilisation: judge by power, SM activity and tokens, and scale on queue length.

    ## Risk
    A process that sleeps when idle takes some milliseconds to wake, which the first request after a
    pause pays. Autoscalers that follow utilisation see it fall and may remove replicas: move them
    to the queue first.
    """
    case = Case()
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    rest = nothing_asked(e)
    gpu = e.number("gpu_util_ratio").any_above(GPU_SPINS)
    cores = either(
        *(_spins(e, role) for role in ("worker", "engine")),
        e.number("cpu_cores_used").at_least(CORE_SPINS),
    )
    quiet = _powers(e, POWER_IDLE)
    case.must(running.at_most(0.05) if running.known else _no_load(e))
    case.shows(both(rest, gpu), 4.0)
    case.shows(both(rest, cores), 4.0)
    case.shows(both(either(gpu, cores), _no_load(e)), 2.8)
    case.sign(both(either(gpu, cores), quiet), yes=1.0)
    case.sign(_powers(e, POWER_WORKS).negated(), yes=-3.0)
    case.sign(e.number("process_uptime_s").at_most(FRESH_S), yes=-1.5)
    case.sign(e.number("replicas_ready").at_most(0.0), yes=-3.0)
    case.sign(e.number("k8s.pods_on_gpu").above(1.0), yes=-2.0)
    case.refutes(waiting.above(0.0))
    case.refutes(any_served(e))
    case.refutes(no_gpu(e))
    return case.opinion(
        advice="Let idle workers sleep, and judge this replica by power and tokens."
    )


def _no_load(e: Evidence) -> Check:
    """Does nothing arrive and nothing come out?"""
    return either(
        e.number("output_tokens_per_s").at_most(0.0),
        e.number("rate_rps").at_most(0.0),
        e.number("requests_per_s").at_most(0.0),
        e.number("requests_per_s_arriving").at_most(0.0),
        e.is_one_of("kind", "none"),
    )


def _spins(e: Evidence, role: str) -> Check:
    cores: Quantity = e.number(f"{role}_process_cpu_ratio")
    truth = cores.most.at_least(CORE_SPINS) if cores.known else None
    return Check(cores.key, cores.plain(), f"any >= {CORE_SPINS:g}", truth)


def _powers(e: Evidence, share: float) -> Check:
    """Does the card draw less than that share of its limit?"""
    drawn, limit = e.number("power_w"), e.number("power_limit_w")
    rating = limit if limit.known else e.number("hardware.tdp_w")
    return drawn.where(
        f"< {share:g} x {rating.key}",
        lambda power: power.over(rating.value).below(share) if rating.known else None,
    )


RULES: tuple[Rule, ...] = (
    card_is_counted_for_each_pod,
    metric_reads_zero,
    processes_spin_without_work,
)
"""Rules of this family."""
