"""Rules of weights that are read at each step: 16 bits where memory holds the card up."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.weight_words import is_unquantised
from mileage.measure.bottleneck_config import BottleneckConfig

__all__ = ["RULES"]

SLOWER = 0.95
"""Speed below which an arm is slower: repeated runs differ by 2 to 3 %."""

NAMED_KEYS = (
    "model.dtype",
    "model.name",
    "model.weights_gib",
    "quantization",
    "quantization_kernel",
)

BOUNDS = BottleneckConfig()
"""From where on memory holds a card up: the thresholds of `mileage cost bottleneck`."""


@rule(
    "QNT003",
    cause="unquantised_memory_bound",
    needs=("model.dtype", "quantization", "dram_active_ratio", "itl_mean_s", "comparisons"),
    fires={
        "model": {"params_b": 70, "dtype": "bf16"},
        "hardware": {"gpu": "H100", "count": 4},
        "settings": {"tensor_parallel_size": 4},
        "workload": {"slo_itl_s": 0.02},
        "signals": {"dram_active_ratio": 0.82, "itl_p99_s": 0.031, "requests_running": 12},
    },
    clear={"model": {"params_b": 70, "dtype": "fp8"}, "signals": {"dram_active_ratio": 0.82}},
    silent={"model": {"params_b": 70, "dtype": "bf16"}, "hardware": {"gpu": "H100"}},
)
def full_weights_at_the_memory_wall(e: Evidence) -> Opinion:
    """Weights of 16 bits are read at each step, and reading them is what holds the card up.

    ## Why it costs money
    A decode step reads every weight once: half the bytes are nearly half the step, and leave more
    room for the cache.

    ## How it is told
    Weights are in 16 bits, device memory is busy all the time or steps take what reading the
    weights takes, the card multiplies in 8 bits, and the target is missed or requests wait; or a
    run with small weights is faster. Where the targets are met there is nothing to find.

    ## What to do
    Serve a checkpoint in FP8 (Ada, Hopper and later: `--quantization fp8`) or INT8/INT4 (Ampere),
    after checking its quality: `mileage quant` gives the error of each layer.

    ## Risk
    Fewer bits can cost quality, most on long reasoning, code, rare languages and small models:
    compare the tasks that you are paid for, not perplexity alone. Quantising at load
    (`--quantization fp8`) loads the 16-bit weights first, which in many versions still takes the
    old room on the card. The old checkpoint is the way back.
    """
    case, pair = Case(), slowest(_full_arms(e))
    card = Machine(e).gpu
    able = None if card is None else bool(card.fp8_tflops or card.int8_tops)
    can = Check("hardware.gpu", e.text("hardware.gpu"), "multiplies in 8 bits", able)
    case.must(_full_weights(e))
    memory = either(e.number("dram_active_ratio").above(BOUNDS.dram_active_min), _at_the_wall(e))
    case.shows(both(memory, can, either(_misses(e), e.number("requests_waiting").above(0))), 2.6)
    if pair is not None:
        case.shows(pair.speed.below(SLOWER), 3.5)
    measured = pair is not None and pair.speed.below(SLOWER).truth is True
    return case.opinion(
        "warning" if measured else "info", changes=_eight_bits(e), waste_ratio=_waste(pair)
    )


def _full_arms(e: Evidence) -> tuple[Contrast, ...]:
    def words(arm: Arm) -> str:
        return " ".join(str(arm.get(key) or "") for key in ("model.dtype", "quantization"))

    return contrasts(
        e,
        lambda arm: arm.current and is_unquantised(words(arm)) is True,
        lambda arm: is_unquantised(words(arm)) is False,
        *NAMED_KEYS,
    )


def _at_the_wall(e: Evidence) -> Check:
    """Do steps take what reading the weights takes at the least, and no more than twice that?"""
    wall = Machine(e).decode_step_s
    words = "about the time to read the weights"
    if not wall.bounded:
        return Check("itl_mean_s", None, words, None)
    return either(
        *(
            e.number(key).where(words, lambda value: value.at_most(wall.high))
            for key in ("step_time_s", "itl_mean_s", "itl_p50_s")
        )
    )


def _misses(e: Evidence) -> Check:
    slo = e.number("slo_itl_s")
    return either(*(e.number(f"itl_{kind}_s").exceeds(slo) for kind in ("mean", "p50", "p99")))


def _full_weights(e: Evidence) -> Check:
    return Check("model.dtype", e.text("model.dtype"), "16 bits", Machine(e).unquantised)


def _waste(pair: Contrast | None) -> Interval | None:
    if pair is None or not pair.speed.known or not pair.speed.value.bounded:
        return None
    return exactly(1.0).minus(pair.speed.value).clipped(0.0, 1.0)


def _eight_bits(e: Evidence) -> tuple[Change, ...]:
    card = Machine(e).gpu
    return (Change("quantization", "fp8"),) if card is not None and card.fp8_tflops else ()


RULES: tuple[Rule, ...] = (full_weights_at_the_memory_wall,)
"""Rules of this family."""
