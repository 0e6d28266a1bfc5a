"""Rules of the CPU work of each engine step."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import (
    any_served,
    core_full,
    gpu_idle,
    gpu_idle_share,
    gpu_saturated,
    has_media,
    no_gpu,
    nothing_asked,
    part_of,
    slo_met,
)
from mileage.doctor.rules.host_step_arms import (
    clock_makes_no_difference,
    faster_card_makes_no_difference,
    more_load_less_gpu,
    more_running_no_faster,
    offline_is_faster,
    penalties_slow,
    separate_server_is_faster,
)

__all__ = ["RULES"]

GAP_SHARE_MIN = 0.25
"""Gap between two steps over the step from which the CPU sets the pace: steps that are prepared
while the GPU works leave a few hundredths."""

GAP_SHARE_SMALL = 0.1
"""Gap over step that scheduling ahead of the GPU leaves: up to here the card hardly waits."""

UNEVEN = 2.0
"""Requests of one rank over those of another from which the lesser card idles for want of
work."""

GAP_LONG_S = 0.005
"""A gap that is a quarter of a step of 20 ms, as decode steps of served models are; for where the
step itself is not known."""

STEP_FACTOR = 5.0
"""Steps over the longest that the weights' bytes allow; large batches and long contexts double or
treble it, and then the GPU has no idle time."""

STEP_WORK_S = 0.01
"""What the host does for a step at worst in engines that are not bound by it."""

LOGPROBS_FEW = 5.0
"""Entries per token that cost next to nothing."""

GRAPHS_RARE = 0.5
"""Share of decode steps run from a graph below which launches explain long steps."""

LONG_PROMPT_TOKENS = 4000.0
"""Prompts whose chunks share the steps with decoding and lengthen them."""

ONE_CORE = (0.9, 1.3)
"""Cores that one full process and idle helpers beside it use."""


@rule(
    "HOST001",
    cause="engine_host_bound",
    explains=("serial_sampling_cpu",),
    needs=(
        "engine_process_cpu_ratio",
        "worker_process_cpu_ratio",
        "gpu_util_ratio",
        "sm_active_ratio",
        "step_host_gap_s",
        "step_time_s",
        "api_server_mode",
        "sm_clock_locked_ratio",
        "comparisons",
    ),
    fires={
        "engine": {"name": "vllm", "version": "0.8.4", "variant": "v1"},
        "settings": {"enforce_eager": False},
        "signals": {
            "engine_process_cpu_ratio": 0.99,
            "sm_active_ratio": 0.41,
            "requests_running": 48,
            "step_time_s": 0.021,
            "step_host_gap_s": 0.011,
        },
    },
    clear={
        "signals": {"engine_process_cpu_ratio": 1.0, "sm_active_ratio": 0.95},
    },
    silent={"signals": {"engine_process_cpu_ratio": 1.0, "requests_running": 30}},
)
def step_waits_for_cpu(e: Evidence) -> Opinion:
    """The CPU work of an engine step takes longer than the GPU's, so that the GPU waits.

    ## Why it costs money
    Scheduling, sampling preparation, kernel launches and detokenising run on one core between
    two GPU steps. While they run the card is paid for and does nothing.

    ## How it is told
    One core is full while the card has idle time; or the gap between steps is a large part of
    the step; or a lower SM clock, or a faster card, hardly changes the throughput. A full core
    beside a saturated GPU is a busy wait, not this; nor is a core that spins without requests
    (`idle_busy_spin`). With CUDA graphs off it is `enforce_eager_on`; with a CPU quota
    `cpu_thread_oversubscription`; with the API server's process full `frontend_cpu_bound`.

    ## What to do
    vLLM: a V1 engine with `--async-scheduling`, graphs on, the API server in its own process.
    SGLang: keep the overlap scheduler on. TensorRT-LLM: keep `disable_overlap_scheduler` false.
    Any engine: cores with a high clock, bound to the GPU's NUMA node, and larger batches.

    ## Risk
    Asynchronous scheduling and the overlap scheduler plan a step before the last one is read, so a
    few features (some kinds of speculation and structured output) are refused or fall back with
    them: look for that in the start-up log. Binding to cores takes them from everybody else. All of
    it needs a restart, and is undone by leaving the flags out.
    """
    case = Case()
    engine, worker = (
        core_full(e, f"{role}_process_cpu_ratio").said("one core is full")
        for role in ("engine", "worker")
    )
    idle, gap = gpu_idle(e), e.number("step_host_gap_s")
    gap_large = either(
        part_of(gap, e.number("step_time_s"), GAP_SHARE_MIN),
        part_of(gap, e.number("itl_mean_s"), GAP_SHARE_MIN),
    )
    case.shows(both(engine, idle), 4.0)
    case.shows(both(worker, idle, any_served(e)), 2.5)
    case.shows(both(_one_core_of_many(e), idle), 2.5)
    case.shows(gap_large, 3.5)
    case.shows(both(gap.above(0.0), idle), 3.0)
    case.shows(gap.at_least(GAP_LONG_S), 2.4)
    case.shows(both(e.is_one_of("api_server_mode", "in_process"), idle, _crowded(e)), 3.0)
    case.shows(separate_server_is_faster(e), 4.5)
    case.shows(offline_is_faster(e, "in_process"), 3.5)
    case.shows(clock_makes_no_difference(e), 4.0)
    case.shows(faster_card_makes_no_difference(e), 3.5)
    case.shows(penalties_slow(e), 4.0)
    case.shows(more_load_less_gpu(e), 2.3)
    case.shows(_step_unexplained(e), 2.3)
    case.shows(both(more_running_no_faster(e), idle, _one_card(e)), 2.6)
    for against in (gpu_saturated(e), nothing_asked(e), no_gpu(e), _gap_small(e)):
        case.refutes(against)
    _against_neighbours(case, e)
    advice = "Move work off the engine's core: overlap scheduling, API server in its own process."
    return case.opinion(advice=advice, waste_ratio=_gap_share(e) or gpu_idle_share(e))


def _gap_share(e: Evidence) -> Interval | None:
    gap, step = e.number("step_host_gap_s"), e.number("step_time_s")
    if not gap.known or not step.known or step.value.low <= 0:
        return None
    return gap.value.over(step.value).clipped(0.0, 1.0)


def _against_neighbours(case: Case, e: Evidence) -> None:
    case.sign(e.is_true("enforce_eager"), yes=-1.0)
    case.sign(e.number("cpu_throttled_ratio").above(0.02), yes=-1.5)
    case.sign(core_full(e, "frontend_process_cpu_ratio"), yes=-1.0)
    case.sign(has_media(e), yes=-0.5)
    case.sign(core_full(e, "client_process_cpu_ratio"), yes=-2.0)
    case.sign(e.number("requests_running").below(1.0), yes=-3.0)
    case.sign(_ranks_uneven(e), yes=-2.5)
    case.sign(slo_met(e), yes=-2.5)
    engine = e.number("engine_process_cpu_ratio")
    roomy = Check(engine.key, engine.plain(), "all < 0.6", engine.most.below(0.6))
    case.sign(roomy if engine.known else engine.below(0.6), yes=-2.0)


def _ranks_uneven(e: Evidence) -> Check:
    """Do some ranks run far fewer requests? Their cards idle for want of work."""
    running = e.number("requests_running")
    truth = None
    if running.units:
        truth = running.most.exceeds(running.least.times(exactly(UNEVEN)))
    return Check(running.key, running.plain(), f"one rank > {UNEVEN:g} x another", truth)


def _one_core_of_many(e: Evidence) -> Check:
    """Does the whole container use about one core of several that it has?"""
    cores = e.number("cpu_cores_used")
    several = either(
        e.number("k8s.cpu_limit").above(1.5),
        e.number("hardware.cpus").above(1.5),
        e.number("cpu_visible_count").above(1.5),
    )
    about_one = both(cores.at_least(ONE_CORE[0]), cores.at_most(ONE_CORE[1]))
    return both(either(about_one, _one_core_by_share(e)), several, any_served(e))


def _one_core_by_share(e: Evidence) -> Check:
    """The same from the share of all CPUs in use times their number."""
    share, cpus = e.number("cpu_util_ratio"), e.number("cpu_visible_count")
    cpus = cpus if cpus.known else e.number("hardware.cpus")
    used = Quantity("cpu_util_ratio", "ratio")
    if share.known and cpus.known:
        used = Quantity("cpu_util_ratio", "cores", "one", (share.value.times(cpus.value),))
    return both(used.at_least(ONE_CORE[0]), used.at_most(ONE_CORE[1]))


def _step_unexplained(e: Evidence) -> Check:
    """Is a step many times as long as one read of the weights, on a card with idle time?

    Only where nothing else is known that lengthens steps: several cards, offloaded weights,
    constrained output, drafts, adapters, chunks of long prompts.
    """
    bound, other = Machine(e).decode_step_s, _other_work(e).truth
    checks = []
    for key in ("step_time_s", "itl_mean_s", "itl_p50_s"):
        step, truth = e.number(key), None
        if step.known and bound.bounded and other is not True:
            long = bound.times(exactly(STEP_FACTOR)).plus(exactly(STEP_WORK_S))
            truth = step.value.exceeds(long)
        checks.append(Check(key, step.plain(), f"> {STEP_FACTOR:g} x {bound.shown()} s", truth))
    return both(either(*checks), gpu_idle(e), any_served(e))


def _one_card(e: Evidence) -> Check:
    """No tensor parallelism as far as is known: its communication grows with the batch too."""
    cards = e.number("tensor_parallel_size")
    return Check(cards.key, cards.plain(), "one card", not cards.above(1.0).truth)


def _other_work(e: Evidence) -> Check:
    return either(
        e.is_true("enforce_eager"),
        e.number("graph_replay_ratio").below(GRAPHS_RARE),
        e.number("tensor_parallel_size").above(1.0),
        e.number("pipeline_parallel_size").above(1.0),
        e.number("cpu_offload_gb").above(0.0),
        e.number("vgpu.core_limit_ratio").below(1.0),
        e.number("speculative.num_tokens").above(0.0),
        e.is_one_of("structured_output", "json_schema", "grammar", "regex"),
        e.is_true("enable_lora"),
        e.number("logprobs").above(LOGPROBS_FEW),
        e.number("cpu_throttled_ratio").any_above(0.02),
        has_media(e),
        e.number("isl_tokens").above(LONG_PROMPT_TOKENS),
        e.number("prompt_tokens_per_s").exceeds(e.number("output_tokens_per_s"), factor=10.0),
    )


def _crowded(e: Evidence) -> Check:
    return either(
        e.number("concurrency").above(1.0),
        e.number("requests_running").above(1.0),
        e.number("requests_waiting").above(0.0),
    )


def _gap_small(e: Evidence) -> Check:
    gap, step = e.number("step_host_gap_s"), e.number("step_time_s")
    return part_of(gap, step, GAP_SHARE_SMALL).negated()


RULES: tuple[Rule, ...] = (step_waits_for_cpu,)
"""Rules of this family."""
