"""Words of dtypes, quantisation and model names: how many bytes a weight takes."""

from __future__ import annotations

from mileage.doctor.interval import Interval

__all__ = ["bytes_per_weight", "is_unquantised", "is_weight_only"]

SIZES = (
    (("nvfp4", "mxfp4", "fp4", "int4", "q4", "w4", "4bit"), Interval(0.5, 0.65)),
    (("q5", "q6"), Interval(0.65, 0.85)),
    (("fp8", "int8", "q8", "w8", "8bit"), Interval(1.0, 1.1)),
    (("awq", "gptq"), Interval(0.5, 0.65)),
    (("bf16", "fp16", "half", "bfloat16", "float16"), Interval(2.0, 2.0)),
    (("fp32", "float32"), Interval(4.0, 4.0)),
)
"""Words of a dtype or quantisation -> bytes of a stored weight, scales with it. What says the bits
comes before what says the method."""

ANY_SIZE = Interval(0.5, 2.0)

WEIGHT_ONLY = ("int4", "awq", "gptq", "w4a16", "w8a16", "4bit", "8bit", "bitsandbytes", "marlin")
"""Formats that store small weights and multiply in 16 bits."""


def bytes_per_weight(said: str) -> Interval:
    """Bytes of a stored weight by the words of its dtype, quantisation and name (lower case)."""
    for words, size in SIZES:
        if any(word in said for word in words):
            return size
    return ANY_SIZE


def is_unquantised(said: str) -> bool | None:
    """Are weights stored in 16 bits or more? None where no word says so."""
    size = bytes_per_weight(said)
    if size == ANY_SIZE:
        return None
    return size.low >= 2.0


def is_weight_only(said: str) -> bool | None:
    """Are small weights multiplied in 16 bits? None where no word says of what kind they are."""
    if any(word in said for word in WEIGHT_ONLY):
        return True
    return None if bytes_per_weight(said) == ANY_SIZE else False
