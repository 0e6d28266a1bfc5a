"""Which formats are tried: all that a mix may have, and those that engines know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mileage.core.errors import ConfigError
from mileage.quant.formats import KvFormat, Side, check_width, format_named

__all__ = ["ANCHORS", "IDEAL", "LLAMA_CPP", "fitting"]

LLAMA_CPP: Final[tuple[str, ...]] = ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""Types of llama.cpp's --cache-type-k and --cache-type-v, those in FP16's stead."""

IDEAL: Final[tuple[str, ...]] = (
    "f16",
    "int8-token",
    "int8-channel",
    "e4m3",
    "nvfp4",
    *LLAMA_CPP[1:],
    *(f"int{bits}-channel-g{group}" for bits in range(2, 8) for group in (32, 64)),
    *(f"int{bits}-token-g{group}+rot" for bits in range(2, 8) for group in (32, 64)),
    *(f"int{bits}-token+rot" for bits in range(3, 8)),
)
"""What a mix is made of where an engine could read any."""

ANCHORS: Final[dict[Side, tuple[str, ...]]] = {
    "k": ("int4-channel-g64",),
    "v": ("int4-channel-g64", "int4-token-g64+rot"),
}
"""Measured in every slot, at about 4 bits: the KL is well above rounding and still of second order.
Of keys one family is enough: at equal bits, groups along channels win in nearly every layer."""


def fitting(names: Sequence[str], head_dim: int, *, key: str = "--formats") -> tuple[KvFormat, ...]:
    """The formats whose groups divide a head's width; raises ConfigError where none does."""
    found = []
    for name in names:
        kv_format = format_named(name, key=key)
        try:
            check_width(kv_format, head_dim, key=key)
        except ConfigError:
            continue
        found.append(kv_format)
    if not found:
        raise ConfigError(
            key, ", ".join(names), f"a format whose groups divide heads of {head_dim}"
        )
    return tuple(found)
