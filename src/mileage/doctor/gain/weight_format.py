"""How weights and caches are stored, in the cost model's terms, from the words of the facts."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.precision import KvPrecision, Precision

__all__ = ["kv_format", "weight_format"]

_WORDS: Final[tuple[tuple[Precision, tuple[str, ...]], ...]] = (
    ("fp4", ("nvfp4", "mxfp4", "fp4")),
    ("int4", ("int4", "w4a", "4bit", "awq", "gptq", "q4_")),
    ("fp8", ("fp8",)),
    ("int8", ("int8", "w8a8")),
    ("bf16", ("bf16", "fp16", "bfloat16", "float16", "half")),
)
"""Of several formats that are named the smallest is the weights': others are activations'."""


def weight_format(*said: str | None) -> Precision | None:
    """By what is said of the weights, the surest first (lower case); None where nothing tells."""
    for each in said:
        for kind, words in _WORDS:
            if each is not None and any(word in each for word in words):
                return kind
    return None


def kv_format(said: str | None) -> KvPrecision | None:
    """By the cache's dtype (lower case), 16 bits where none is set; None: one of another size."""
    if said is None or said == "auto" or any(word in said for word in _WORDS[-1][1]):
        return "bf16"
    return "fp8" if "fp8" in said else None
