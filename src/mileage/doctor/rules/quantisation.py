"""Rules of quantised weights: slow kernels, and small weights where compute is the limit."""

from __future__ import annotations

from mileage.costmodel.gpu import Gpu
from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.weight_words import is_unquantised, is_weight_only
from mileage.measure.bottleneck_config import BottleneckConfig

__all__ = ["RULES"]

SLOWER = 0.95
"""Speed below which an arm is slower: repeated runs differ by 2 to 3 %."""

FAST_KERNELS = (
    *("marlin", "machete", "exllamav2", "cutlass", "allspark", "bitblas", "tensorrt", "trtllm"),
    *("flashinfer", "conch"),
)
"""Kernels that reach memory speed at small batches and compute speed at large ones."""

SLOW_METHODS = ("awq", "gptq")
"""Values of `--quantization` that name the method's first kernel and so forbid a faster one."""

KERNEL_KEYS = ("quantization", "quantization_kernel")

FORCED = r"so forcing (awq|gptq)|Use quantization=(awq|gptq)_marlin for faster inference"
NOT_OPTIMISED = r"(awq|gptq) quantization is not fully optimized yet"
WEIGHT_ONLY_FP8 = r"Weight-only FP8 compression will be used"


@rule(
    "QNT001",
    cause="wrong_quant_kernel",
    needs=("quantization", "quantization_kernel", "model.dtype", "logs", "comparisons"),
    fires={
        "engine": {"name": "vllm", "version": "0.8.5"},
        "model": {"params_b": 14, "dtype": "int4"},
        "settings": {"quantization": "gptq", "quantization_kernel": "gptq"},
    },
    clear={
        "model": {"params_b": 14, "dtype": "int4"},
        "settings": {"quantization": None, "quantization_kernel": "gptq_marlin"},
    },
    silent={"model": {"params_b": 14, "dtype": "int4"}},
)
def slow_kernel_for_small_weights(e: Evidence) -> Opinion:
    """An explicit quantisation flag selects a slow kernel for weights that have a fast one.

    ## Why it costs money
    The first AWQ and GPTQ kernels unpack weights at a fraction of the memory's speed, and lose
    more at each larger batch. Marlin and its like run the same weights several times faster.

    ## How it is told
    The same weights are faster without the flag or by another kernel; or the flag names the slow
    one, or the log says that it was forced; or 4 bits are slower than 16 at a batch of few. At a
    large batch other weights in the compared arm (16 bits) are `quant_slow_at_high_batch`.

    ## What to do
    Leave `--quantization` out: the engine takes the fastest kernel that the card can run; or name
    it (`awq_marlin`, `gptq_marlin`). Cards before Turing have the slow one only.

    ## Risk
    Another kernel for the same weights rounds differently in the last digits: answers at
    temperature 0 may differ in places, quality does not. Where the fast kernel does not support
    group size or activation order, the engine refuses to start and says so; put the flag back then.
    """
    case, pair = Case(), slowest(_kernel_arms(e))
    if pair is not None:
        case.shows(pair.speed.below(SLOWER), 4.5)
        case.refutes(pair.speed.at_least(1.0))
        case.sign(pair.clean(), no=-2.0)
    case.shows(_slow_at_small_batch(e), 2.8)
    explicit = e.is_one_of("quantization", *SLOW_METHODS)
    kernel = e.is_one_of("quantization_kernel", *SLOW_METHODS, "exllama", "triton")
    case.shows(e.logged(FORCED), 4.0)
    case.shows(kernel, 3.0)
    case.shows(both(explicit, _can_do_better(e)), 2.5)
    case.shows(both(explicit, e.logged(NOT_OPTIMISED)), 2.6)
    case.sign(explicit, yes=0.3)
    if pair is None:
        case.refutes(e.contains("quantization_kernel", *FAST_KERNELS))
        case.refutes(both(_full_weights(e), explicit.negated()))
    return case.opinion(changes=(Change("quantization", None),), waste_ratio=_waste(pair))


def _slow_at_small_batch(e: Evidence) -> Check:
    """Are 4-bit weights slower than 16 bits where reading weights is the limit?

    A quarter of the bytes must be faster there, by any kernel but a slow one.
    """
    told = [
        both(_tiny(e, pair), pair.speed.below(SLOWER))
        for pair in _format_arms(e)
        if pair.speed.known
    ]
    return either(*told) if told else Check("comparisons", None, "slower at a small batch", None)


def _kernel_arms(e: Evidence) -> tuple[Contrast, ...]:
    """Arms of one checkpoint: the flag of one names a method, the other's its fast kernel or none.

    AWQ and GPTQ are different checkpoints, and so are 16-bit weights.
    """
    found = contrasts(e, _is_plain, _is_faster, *KERNEL_KEYS)
    return tuple(
        pair
        for pair in found
        if "model.dtype" not in pair.besides and "model.name" not in pair.besides
        if _same_method(pair)
    )


def _is_plain(arm: Arm) -> bool:
    """Does a flag or kernel stand there, of weights that are small as they are stored?"""
    named = (arm.get("quantization"), arm.get("quantization_kernel"))
    if any(name in SLOW_METHODS or name == "exllama" for name in named):
        return True
    return named[0] is not None and is_unquantised(str(arm.get("model.dtype") or "")) is False


def _is_faster(arm: Arm) -> bool:
    kernel, flag = arm.get("quantization_kernel"), arm.get("quantization")
    if kernel is not None:
        return any(word in str(kernel) for word in FAST_KERNELS)
    if flag is None:
        return "quantization" in arm.values
    return any(word in str(flag) for word in FAST_KERNELS)


def _same_method(pair: Contrast) -> bool:
    one = pair.one.get("quantization") or pair.one.get("quantization_kernel")
    other = pair.other.get("quantization") or pair.other.get("quantization_kernel")
    if one is None or other is None:
        return True
    methods = {word for word in SLOW_METHODS for name in (one, other) if word in str(name)}
    return len(methods) <= 1


def _can_do_better(e: Evidence) -> Check:
    """Has the card fast kernels (Turing and later), as far as it is known?"""
    card = Machine(e).gpu
    truth = None if card is None else card.int8_tops is not None and "v100" not in card.name.lower()
    return Check("hardware.gpu", e.text("hardware.gpu"), "has faster kernels", truth)


def _full_weights(e: Evidence) -> Check:
    return Check("model.dtype", e.text("model.dtype"), "16 bits", Machine(e).unquantised)


def _waste(pair: Contrast | None) -> Interval | None:
    if pair is None or not pair.speed.known or not pair.speed.value.bounded:
        return None
    return exactly(1.0).minus(pair.speed.value).clipped(0.0, 1.0)


NO_GAIN = 1.02
"""Small weights that give no more than this give nothing: repeated runs differ by as much."""

LARGE_BATCH = 64
"""Requests from which on an A/B is one of large batches, where the card is not known: cards turn
from memory to compute at 100 to 300 tokens a step in 16 bits, and at a quarter of it in 4."""

SMALL_BATCH = 8
"""Requests up to which every card is bound by memory in every format."""

WEIGHT_KEYS = ("model.dtype", "quantization", "quantization_kernel", "model.weights_gib")
NAMED_KEYS = (*WEIGHT_KEYS, "model.name")

TENSOR_BUSY = 0.5
"""Share of the time in which tensor cores work, from which on compute and not memory is used up:
the kernels of large batches reach 0.5 to 0.8."""


@rule(
    "QNT002",
    cause="quant_slow_at_high_batch",
    needs=(
        "comparisons",
        "model.dtype",
        "quantization",
        "concurrency",
        "requests_running",
        "tensor_active_ratio",
        "logs",
    ),
    fires={
        "model": {"params_b": 32},
        "workload": {"concurrency": 300},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "16 bits",
                        "model": {"dtype": "bf16"},
                        "signals": {"output_tokens_per_s": 5200},
                    },
                    {
                        "arm": "4 bits",
                        "model": {"dtype": "int4"},
                        "signals": {"output_tokens_per_s": 4100},
                        "current": True,
                    },
                ]
            }
        ],
    },
    clear={"model": {"dtype": "bf16"}, "workload": {"concurrency": 300}},
    silent={"model": {"dtype": "int4"}, "workload": {"concurrency": 300}},
)
def small_weights_at_large_batch(e: Evidence) -> Opinion:
    """Weight-only quantisation gives nothing, or loses, where compute is the limit.

    ## Why it costs money
    INT4 weights are unpacked and multiplied in 16 bits. That saves reading where memory is the
    limit (a small batch); in prefill and large batches unpacking comes on top of full compute.

    ## How it is told
    At a large batch, or with prompts and hardly any output, the arm with 4-bit weights is no
    faster than that with 16 bits; or tensor cores are busy with more requests than the ridge of
    the card. At a small batch a slow arm has a slow kernel: `wrong_quant_kernel`.

    ## What to do
    Use a format that multiplies in 8 bits: FP8 on Ada, Hopper and later (`--quantization fp8`, or
    a checkpoint in W8A8), INT8 W8A8 on Ampere. Keep 4 bits where memory or small batches decide.

    ## Risk
    Eight bits take twice the memory of four, so the KV cache shrinks and the longest context may no
    longer fit. FP8 without calibration on activations can cost quality on some models: run the
    evaluation that you chose the 4-bit checkpoint by. INT8 needs a checkpoint that was calibrated.
    """
    case, pair = Case(), slowest(_format_arms(e))
    small = _is_small(e, pair)
    if pair is not None:
        case.shows(pair.speed.at_most(NO_GAIN), 4.0)
        case.refutes(pair.speed.at_least(1.05))
        case.sign(pair.clean(), no=-1.0)
        case.sign(small, yes=1.0)
        case.refutes(_tiny(e, pair))
    else:
        only = _weight_only(e)
        case.shows(both(only, small, _computes(e)), 2.6)
        case.shows(both(only, _prefill(e)), 2.4)
        case.refutes(only.negated())
        case.refutes(both(_batch(e, None).negated(), _prefill(e).negated()))
    return case.opinion(changes=_eight_bits(e), waste_ratio=_waste(pair))


def _format_arms(e: Evidence) -> tuple[Contrast, ...]:
    """Arms with small weights against arms with 16 bits."""

    def words(arm: Arm) -> str:
        keys = ("model.dtype", "quantization", "model.name")
        return " ".join(str(arm.get(key) or "") for key in keys)

    card = Machine(e).gpu

    def small(arm: Arm) -> bool:
        return _multiplies_in_16_bits(words(arm), card) is True

    def full(arm: Arm) -> bool:
        said = is_unquantised(words(arm))
        return said is True or (said is None and not arm.get("quantization"))

    return contrasts(e, small, full, *NAMED_KEYS)


def _batch(e: Evidence, pair: Contrast | None) -> Check:
    """Is the batch beyond the card's ridge in 16 bits (or large, where it is not known)?"""
    ridge = Machine(e).ridge_requests
    limit = ridge.low if ridge.bounded else float(LARGE_BATCH)
    if pair is not None:
        limit = float(LARGE_BATCH)
    keys = ("requests_running", "requests_running_max", "concurrency")
    numbers = [pair.one.number(key) if pair is not None else e.number(key) for key in keys]
    known = next((number for number in numbers if number.known), numbers[-1])
    return known.at_least(limit)


def _tiny(e: Evidence, pair: Contrast) -> Check:
    return either(
        *(pair.one.number(key).at_most(SMALL_BATCH) for key in ("concurrency", "requests_running"))
    )


def _is_small(e: Evidence, pair: Contrast | None) -> Check:
    return either(_batch(e, pair), _prefill(e))


def _prefill(e: Evidence) -> Check:
    """Is nearly all work prompts: one or two output tokens?"""
    output = e.number("osl_tokens")
    return (output if output.known else e.number("max_tokens")).at_most(2)


def _computes(e: Evidence) -> Check:
    return either(
        e.number("tensor_active_ratio").above(TENSOR_BUSY),
        e.number("sm_active_ratio").above(BottleneckConfig().sm_active_min),
    )


def _weight_only(e: Evidence) -> Check:
    said = [word for key in ("model.dtype", "quantization", "model.name") if (word := e.text(key))]
    told = _multiplies_in_16_bits(" ".join(said), Machine(e).gpu) if said else None
    stated = Check("model.dtype", e.text("model.dtype"), "small weights, 16-bit products", told)
    logged = e.logged(WEIGHT_ONLY_FP8)
    return logged if logged.truth else stated


def _multiplies_in_16_bits(said: str, card: Gpu | None) -> bool | None:
    """Are small weights unpacked first? FP8 and FP4 too, on a card that cannot multiply in them."""
    told = is_weight_only(said)
    if told is False and card is not None:
        lacks = ("fp8", card.fp8_tflops), ("fp4", card.fp4_tflops)
        return any(word in said and rate is None for word, rate in lacks)
    return told


def _eight_bits(e: Evidence) -> tuple[Change, ...]:
    card = Machine(e).gpu
    return (Change("quantization", "fp8"),) if card is not None and card.fp8_tflops else ()


RULES: tuple[Rule, ...] = (
    slow_kernel_for_small_weights,
    small_weights_at_large_batch,
)
"""Rules of this family."""
