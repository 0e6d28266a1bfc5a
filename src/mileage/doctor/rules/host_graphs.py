"""Rules of CUDA graphs."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import core_full, gpu_idle, gpu_saturated, no_gpu
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    loss_of_effect,
    speeds,
)
from mileage.doctor.vocabulary import KEYS

__all__ = ["RULES"]

GO_ALONG = ("engine.version", "engine.variant", "gpu_memory_utilization", "max_num_seqs")
"""What people change together with CUDA graphs: the release that switched them off, and the
memory that they take."""

GRAPH_SHARE_LOW = 0.5
"""Share of decode steps run from a graph below which most steps pay for their launches."""

GRAPH_GAIN = 0.95
"""Speed without graphs over speed with them below which the difference is no noise."""

LAUNCHES_HIDDEN_REQUESTS = 256
"""Batch from which the GPU's time per kernel mostly hides its launch (some 5 microseconds)."""

CPU_BACK_END_CORES = 4.0
"""Cores of one process of an engine that no launching of kernels keeps busy."""

CARD_KEYS = (
    "hardware.gpu",
    "hardware.memory_gb",
    "gpu_util_ratio",
    "gr_engine_active_ratio",
    "sm_active_ratio",
    "gpu_mem_used_gb",
    "power_w",
)
"""Facts that only a card has."""

EAGER_LOGGED = (
    r"enforce_eager=True|cudagraph is disabled under eager|enforce eager set|"
    r"fallback to the eager mode|disable_cuda_graph=True|decode batch.*cuda graph: false|"
    r"cudagraph_mode\W+(CUDAGraphMode\.)?NONE"
)
"""What vLLM, SGLang and their forks write where graphs are off; of decode steps only, as prefills
run without graphs as a rule."""


@rule(
    "HOST002",
    cause="enforce_eager_on",
    explains=("engine_host_bound", "version_regression", "serial_sampling_cpu"),
    needs=("enforce_eager", "graph_replay_ratio", "logs", "comparisons"),
    fires={
        "engine": {"name": "vllm", "version": "0.9.2"},
        "settings": {"enforce_eager": True},
        "signals": {"itl_mean_s": 0.031, "requests_running": 2, "gpu_util_ratio": 0.45},
    },
    clear={
        "settings": {"enforce_eager": False},
        "signals": {"graph_replay_ratio": 0.98, "itl_mean_s": 0.012},
    },
    silent={"engine": {"name": "vllm"}, "signals": {"itl_mean_s": 0.03}},
)
def graphs_are_off(e: Evidence) -> Opinion:
    """CUDA graphs are off, so that every decode step launches each of its kernels by hand.

    ## Why it costs money
    A decode step of a small batch is some hundred kernels of a few microseconds. Launched one by
    one by the CPU they take longer than they run, and the GPU waits between them.

    ## How it is told
    The setting as it is in effect (flag, wrapper or shipped configuration), or the share of
    decode steps that are replayed from a graph; a run with graphs beside one without proves it.
    With graphs on the same picture is `engine_host_bound`. On CPU back ends, in engines that
    only prefill and at very large batches graphs give little.

    ## What to do
    vLLM: remove `--enforce-eager` (`enforce_eager: false` in wrappers and stage configurations;
    `cudagraph_mode` not NONE). SGLang: remove `--disable-cuda-graph`, raise
    `--cuda-graph-max-bs` to the batch. TensorRT-LLM: set `cuda_graph_config`. Where graphs were
    switched off to save memory, capture fewer batch sizes instead.

    ## Risk
    Captured graphs take memory on the card (often 0.5 to 3 GiB) that the KV cache then lacks, and
    make the start longer by up to a minute or two. A custom kernel that cannot be captured fails at
    the start, or gives wrong output: compare some answers. Set the flag again to go back.
    """
    case = Case()
    eager, replayed = e.is_true("enforce_eager"), e.number("graph_replay_ratio")
    family = engine_family(e.text("engine.name"))
    trt = family == "tensorrt-llm"
    pairs = speeds(e, "enforce_eager", _eager, also=GO_ALONG)
    mostly = replayed.below(GRAPH_SHARE_LOW)
    case.shows(either(eager, e.logged(EAGER_LOGGED), replayed.at_most(0.05)), 2.6)
    case.shows(both(mostly, replayed.above(0.05)), 3.0)
    case.shows(effect_check(pairs, GRAPH_GAIN), 4.0)
    if mostly.truth is not True:
        case.refutes(e.is_false("enforce_eager"))
        if family in ("vllm", "sglang"):
            case.refutes(e.is_unset("enforce_eager"))
    case.refutes(free_of_effect(pairs, 0.98))
    case.refutes(replayed.above(0.9))
    case.refutes(no_gpu(e))
    case.sign(_steps_seen(e), yes=1.4)
    case.sign(_compares_something_else(e), yes=-1.2)
    case.sign(gpu_idle(e), yes=0.5)
    case.sign(core_full(e, "engine_process_cpu_ratio"), yes=0.5)
    case.sign(_launches_hidden(e), yes=-0.7)
    case.sign(gpu_saturated(e), yes=-1.5)
    case.sign(_only_prefills(e), yes=-2.5)
    case.sign(_computes_on_cores(e), yes=-3.0)
    return case.opinion(
        advice="Switch CUDA graphs on: decode steps then cost one launch"
        + (" (cuda_graph_config: {} in the options file)." if trt else "."),
        changes=() if trt else (Change("enforce_eager", False),),
        waste_ratio=loss_of_effect(pairs),
    )


def _eager(arm: Arm) -> bool | None:
    value = arm.get("enforce_eager")
    if value is None and "enforce_eager" in arm.values:
        return False
    return value if isinstance(value, bool) else None


def _steps_seen(e: Evidence) -> Check:
    """Is the speed of steps what is looked at? A flag beside other trouble may be no part of it."""
    speeds_known = ("itl_mean_s", "itl_p50_s", "itl_p99_s", "step_time_s", "output_tokens_per_s")
    seen = [key for key in speeds_known if e.known(key)]
    key = seen[0] if seen else "itl_mean_s"
    return Check(key, e.number(key).plain(), "known", True if seen else None)


def _compares_something_else(e: Evidence) -> Check:
    """Do the arms differ in another setting or version, with this flag the same in all?"""
    varied = {key for comparison in e.comparisons for key in comparison.varied()}
    others = {key for key in varied if KEYS[key][0] in ("engine", "model", "settings", "hardware")}
    truth = None if not others or "enforce_eager" in others else True
    return Check("comparisons", sorted(others) or None, "about another setting", truth)


def _launches_hidden(e: Evidence) -> Check:
    return either(
        e.number("requests_running").at_least(LAUNCHES_HIDDEN_REQUESTS),
        e.number("concurrency").at_least(LAUNCHES_HIDDEN_REQUESTS),
    )


def _computes_on_cores(e: Evidence) -> Check:
    """Does the engine keep many cores busy, and is nothing known of a card? It is a CPU back end.

    An engine with cards keeps one or two cores busy for each of its processes.
    """
    seen = [key for key in CARD_KEYS if e.known(key)]
    cardless = Check("hardware.gpu", None, "no card is seen", None if seen else True)
    busy = (e.number(f"{role}_process_cpu_ratio") for role in ("engine", "worker"))
    return both(either(*(each.any_above(CPU_BACK_END_CORES) for each in busy)), cardless)


def _only_prefills(e: Evidence) -> Check:
    return either(
        e.includes("model.architecture", "embedding"),
        e.number("osl_tokens").at_most(1.0),
        e.number("max_tokens").at_most(1.0),
        e.is_one_of("disaggregation_mode", "prefill"),
    )


RULES: tuple[Rule, ...] = (graphs_are_off,)
"""Rules of this family."""
