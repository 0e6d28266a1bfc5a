"""Rules of the memory budget of the cards."""

from __future__ import annotations

import re

from mileage.doctor.case import Case
from mileage.doctor.check import Check, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import GIB, Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower, larger_than, share_lost
from mileage.doctor.rules.some_arm import in_some_arm

__all__ = ["RULES"]

HEADROOM_GB = 0.5
"""Left free beside what failed: allocators round up and keep fragments."""

SHARE_HIGH = 0.92
"""Share of the card from which on activations of long prompts and other processes lack room:
engines' defaults are 0.9 or below for that reason."""

PCIE_REACHED = Interval(0.4, 1.0)
"""Share of a slot's rate that copies from host memory reach."""

LOGGED_OOM = (
    r"CUDA out of memory|HIP out of memory|NPU out of memory|XPU out of memory"
    r"|torch(\.cuda)?\.OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation"
    r"|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY|ErrorOutOfDeviceMemory"
    r"|failed to allocate .*(CUDA|ROCm|Vulkan|device) *(buffer|memory)"
    r"|unable to allocate (CUDA|device) buffer"
    r"|Free memory on device .*is less than desired GPU memory utilization"
    r"|Initial free memory .*(less|must be)"
)
"""PyTorch on CUDA, ROCm and Ascend; TensorRT-LLM; llama.cpp; vLLM's check at its start."""


LOGGED_LAYERS = re.compile(r"offloaded (\d{1,4})/(\d{1,4}) layers to GPU")
"""llama.cpp, at its start."""


@rule(
    "MEM001",
    cause="oom_memory_headroom",
    needs=(
        "oom_count",
        "alloc_failed_gb",
        "gpu_mem_free_gb",
        "gpu_memory_utilization",
        "prompt_logprobs",
        "logs",
    ),
    fires={
        "settings": {"gpu_memory_utilization": 0.95},
        "workload": {"prompt_logprobs": 1},
        "signals": {"oom_count": 2, "alloc_failed_gb": 3.1, "gpu_mem_free_gb": 1.2},
    },
    clear={"signals": {"oom_count": 0, "gpu_mem_free_gb": 1.2}},
    silent={
        "settings": {"gpu_memory_utilization": 0.95},
        "signals": {"gpu_mem_free_gb": 1.2},
    },
)
def memory_without_headroom(e: Evidence) -> Opinion:
    """Allocations on the card fail: the memory budget leaves no room beside cache and weights.

    ## Why it costs money
    A failed allocation ends requests, or the engine; it starts anew for minutes and serves nobody.

    ## How it is told
    Out-of-memory errors of the device, or an allocation larger than what is free. What asks for
    it: logits of prompts (`prompt_logprobs`), the warm-up of a sampler for many sequences, images,
    another process on the card. Little free memory alone is normal: engines take it all at the
    start. A pool with no room for requests, without such errors, is `kv_room_too_small`.

    ## What to do
    Lower vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`, TensorRT-LLM
    `--kv_cache_free_gpu_memory_fraction`, by what failed; or `--max-num-seqs`, the prefill chunk,
    or the number of log probabilities that a request may ask for.

    ## Risk
    A lower budget is a smaller KV cache: fewer requests run at once, and the longest context may
    not fit any more, which the engine tells at its start. Lower it in steps of 0.02 and load the
    longest prompts that you allow before you trust it.
    """
    case = Case()
    failed, free = e.number("alloc_failed_gb"), e.number("gpu_mem_free_gb")
    errors, logged = e.number("oom_count"), e.logged(LOGGED_OOM)
    case.shows(in_some_arm(e, lambda at: at.number("oom_count").any_above(0.0)), 4.0)
    case.shows(logged, 4.0 if not errors.known else 0.5)
    case.shows(failed.any_above(0.0), 3.5 if not errors.known else 0.5)
    if not logged.truth and not failed.known:
        case.refutes(errors.all_below(1e-12).said("none"))
    case.sign(failed.exceeds(free), yes=1.0)
    case.sign(e.number("prompt_logprobs").above(0.0), yes=0.5)
    case.sign(e.number("gpu_memory_utilization").at_least(SHARE_HIGH), yes=0.5)
    share = _lower_share(e)
    return case.opinion(
        "critical",
        advice=f"Leave {HEADROOM_GB:g} GB more than what failed to all that is not the cache.",
        changes=_smaller_budget(e, share),
    )


def _lower_share(e: Evidence) -> float | None:
    """The share of the card that leaves room for what failed; None where it is not known."""
    share, memory = e.number("gpu_memory_utilization").value, Machine(e).memory_gb
    failed, free = e.number("alloc_failed_gb").most, e.number("gpu_mem_free_gb").least
    if not share.bounded or not memory.bounded or memory.low <= 0:
        return None
    short = (
        max(failed.high - free.low, 0.0) if failed.bounded and free.bounded else 0.04 * memory.low
    )
    lower = share.low - (short + HEADROOM_GB) / memory.low
    return int(100 * lower + 1e-9) / 100 if 0.1 < lower < 1.0 else None


def _smaller_budget(e: Evidence, share: float | None) -> tuple[Change, ...]:
    changes = [] if share is None else [Change("gpu_memory_utilization", share)]
    cap = e.number("max_num_seqs").value
    if e.logged("sampler|dummy requests").truth and cap.bounded and 2 <= cap.high < 1e6:
        changes.append(Change("max_num_seqs", float(int(cap.high / 2))))
    return tuple(changes)


@rule(
    "MEM002",
    cause="stale_cpu_offload",
    needs=("cpu_offload_gb", "model.params_b", "hardware.memory_gb", "output_tokens_per_s"),
    fires={
        "model": {"params_b": 14, "dtype": "bf16"},
        "hardware": {"gpu": "A100-80GB", "count": 1, "memory_gb": 80},
        "settings": {"cpu_offload_gb": 10, "tensor_parallel_size": 1},
        "signals": {"output_tokens_per_s_per_request": 2.1},
    },
    clear={
        "model": {"params_b": 70, "dtype": "bf16"},
        "hardware": {"gpu": "A100-80GB", "count": 1, "memory_gb": 80},
        "settings": {"cpu_offload_gb": 70, "tensor_parallel_size": 1},
    },
    silent={
        "model": {"params_b": 14, "dtype": "bf16"},
        "hardware": {"gpu": "A100-80GB", "count": 1, "memory_gb": 80},
    },
)
def weights_offloaded_needlessly(e: Evidence) -> Opinion:
    """Weights lie in host memory although the cards could hold them.

    ## Why it costs money
    Every step fetches the offloaded weights over PCIe, at a fiftieth of the rate of the card's
    memory. The card waits for the slot.

    ## How it is told
    Offloading is on while the weights fit the memory of all cards with room to spare; the time of
    a step is about what the transfer takes; switching it off makes it faster. Weights that do not
    fit: the offload is what makes it run at all.

    ## What to do
    Set vLLM and SGLang `--cpu-offload-gb 0` (llama.cpp: all layers to the card, `-ngl 999`); if
    the memory then is short, quantise the weights or shorten `--max-model-len`.

    ## Risk
    All weights on the card leave less room for the KV cache, and where they do not fit with it the
    engine fails at the start: it is known within minutes, and the old value brings it back. Test
    the longest context, for that is what memory is lost for.
    """
    case = Case()
    offloaded = e.number("cpu_offload_gb")
    pairs = (*larger_than(e, "cpu_offload_gb"), *_offloaded_against_not(e))
    layers = _layers_left(e)
    on = either(offloaded.above(0.0), layers) if not offloaded.known else offloaded.above(0.0)
    fits = _weights_fit(e)
    case.must(on)
    case.shows(on, 2.5)
    case.shows(any_slower(pairs), 3.0)
    if any_slower(pairs).truth is not True:
        case.refutes(fits.negated())
    case.sign(fits, yes=2.0)
    case.sign(_step_is_the_transfer(e), yes=2.0)
    case.sign(_far_below_bandwidth(e), yes=1.5)
    return case.opinion(
        advice="Keep all weights on the cards: they fit."
        if fits.truth
        else "Keep all weights on the cards if they fit; each step crosses PCIe for them.",
        changes=(Change("cpu_offload_gb", 0.0),),
        waste_ratio=share_lost(pairs) or _waste(e),
    )


def _offloaded_against_not(e: Evidence) -> tuple[Contrast, ...]:
    """Arms that offload beside arms in which the setting is known to be not set."""
    key = "cpu_offload_gb"
    pairs = contrasts(
        e,
        lambda arm: arm.number(key).value.above(0.0) is True and arm.number(key).known,
        lambda arm: arm.number(key).unset,
        key,
    )
    return tuple(pair for pair in pairs if not pair.besides)


def _layers_left(e: Evidence) -> Check:
    """llama.cpp: are some layers not on the card?"""
    for found in e.log_matches(LOGGED_LAYERS):
        line = found.string[:160]
        return Check("logs", line, "fewer than all", int(found[1]) < int(found[2]))
    return Check("logs", None, "fewer layers than all on the card", None)


def _weights_fit(e: Evidence) -> Check:
    """Do the weights fit the cards, by their size or by the memory that is free besides?"""
    machine = Machine(e)
    free, offloaded = e.number("gpu_mem_free_gb"), e.number("cpu_offload_gb")
    spare = free.least.exceeds(offloaded.value) if free.known and offloaded.known else None
    by_free = Check(free.key, free.plain(), "> cpu_offload_gb", spare or None)
    size, weights = machine.memory_gb, machine.weights_gib_per_gpu
    shown = weights.plain() if weights.bounded else None
    by_size = Check(
        "model.weights_gib", shown, f"per card fit its {size.shown()} GB", machine.weights_fit
    )
    return by_size if by_free.truth is None else by_free


def _step_is_the_transfer(e: Evidence) -> Check:
    """Does a step take about as long as fetching the offloaded weights over the slot?"""
    card, step = Machine(e).gpu, _step_s(e)
    offloaded = e.number("cpu_offload_gb").value
    limit = "about the time to fetch the offloaded weights"
    if card is None or not step.bounded or not offloaded.bounded:
        return Check("cpu_offload_gb", None, limit, None)
    seconds = offloaded.times(exactly(GIB / (card.pcie_gb_per_s * 1e9))).over(PCIE_REACHED)
    truth = seconds.low <= 1.5 * step.high and step.low <= 1.5 * seconds.high
    return Check("step_time_s", step.plain(), f"{limit} ({seconds.shown()} s)", truth or None)


def _far_below_bandwidth(e: Evidence) -> Check:
    """Does a step take three times what reading the weights from the card's memory takes?"""
    step, least = _step_s(e), Machine(e).decode_step_s
    if not step.bounded or not least.bounded:
        return Check("step_time_s", None, "> 3 x reading the weights", None)
    truth = step.exceeds(least.times(exactly(3.0)))
    return Check(
        "step_time_s", step.plain(), f"> 3 x reading the weights ({least.shown()} s)", truth
    )


def _step_s(e: Evidence) -> Interval:
    """One decode step: measured, or by the tokens of a request, or of all that run."""
    for key in ("step_time_s", "itl_mean_s", "itl_p50_s"):
        if e.known(key):
            return e.number(key).value
    each = e.number("output_tokens_per_s_per_request")
    if each.known:
        return exactly(1.0).over(each.value)
    running = e.number("requests_running" if e.known("requests_running") else "concurrency")
    together = e.number("output_tokens_per_s")
    return running.value.over(together.total) if running.known and together.known else Interval()


def _waste(e: Evidence) -> Interval | None:
    """Share of a step that is not reading weights from the card's memory."""
    step, least = _step_s(e), Machine(e).decode_step_s
    if not step.bounded or not least.bounded or step.low <= 0:
        return None
    share = least.over(step).clipped(0.0, 1.0)
    return Interval(1.0 - share.high, 1.0 - share.low)


RULES: tuple[Rule, ...] = (memory_without_headroom, weights_offloaded_needlessly)
"""Rules of this family."""
