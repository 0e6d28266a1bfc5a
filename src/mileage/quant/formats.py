"""KV-cache number formats: their names, where their scales lie, and the bits that they take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.core.errors import ConfigError

__all__ = [
    "FORMATS",
    "GGML_BITS",
    "UNQUANTISED",
    "KvFormat",
    "Scheme",
    "Scope",
    "Side",
    "Slot",
    "Values",
    "check_width",
    "format_named",
]

Values = NDArray[np.float32]
"""Keys, values or queries of one layer: (tokens, heads, head_dim)."""

Side = Literal["k", "v"]
Scheme = Literal["f16", "int", "e4m3", "e5m2", "nvfp4", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
Scope = Literal["one", "tensor", "head", "channel", "token"]
"""What shares a scale: nothing is scaled (one), all of a layer's side, a head, a head's channel
over tokens, or a token's head."""

GGML_BITS: Final[dict[str, float]] = {
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
}
"""llama.cpp's cache types, blocks of 32 values with their scale (and minimum) in FP16."""

_GGML_BLOCK = 32
_NVFP4_BLOCK = 16
_STORED_BITS = 16
"""Of a scale, and of a zero point, where they are stored beside the numbers."""

_INTEGER = re.compile(r"int([2-8])-(tensor|head|channel|token)(?:-g(\d+))?(-sym)?")
_FLOAT = re.compile(r"(e4m3|e5m2)(?:-(tensor|head|channel|token))?")


class Slot(NamedTuple):
    """One choice of a format: the keys or the values of one layer."""

    layer: int
    side: Side


class KvFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How one layer's keys or values are stored.

    Scales of a tensor, a head, and a channel without `group` are fixed beforehand (from calibration
    text): those of the text that is served would depend on tokens still to come. Scopes `token` and
    `channel` with `group` find theirs as tokens arrive.
    """

    name: str
    scheme: Scheme
    bits: float
    """Of one number, without its scale; of a ggml type, with it."""

    scope: Scope = "token"
    group: int | None = None
    """Channels (scope token) or tokens (scope channel) that share a scale; None: all of them."""

    symmetric: bool = True
    rotated: bool = False
    """Numbers are stored after a Hadamard rotation of each head, which spreads outliers."""

    @property
    def static(self) -> bool:
        """Whether it needs the ranges of calibration text."""
        if self.scheme == "nvfp4":
            return True
        fixed = self.scope in ("tensor", "head") or (self.scope == "channel" and not self.group)
        return fixed and self.scheme in ("int", "e4m3", "e5m2")

    @property
    def open_group(self) -> int | None:
        """Tokens whose scale is known only when the last of them is there.

        Until then they are kept as they are (KIVI's residual; Liu et al. 2024, arXiv:2402.02750):
        a query sees the other tokens of its own group unquantised.
        """
        return self.group if self.scope == "channel" else None

    def bits_per_value(self, head_dim: int) -> float:
        """Bits of one number of a long context: with its part of the scales and zero points."""
        if self.scheme == "int" or self.scheme.startswith("e"):
            if self.static or self.scope == "one":
                return self.bits
            shared = self.group if self.group is not None else head_dim
            return self.bits + _STORED_BITS * (1 if self.symmetric else 2) / shared
        return self.bits


UNQUANTISED: Final = KvFormat(name="f16", scheme="f16", bits=16.0, scope="one")


def format_named(name: str, *, key: str = "format") -> KvFormat:
    """The format of that name; raises ConfigError for others.

    `intB-SCOPE[-gN][-sym]` (B bits, 2 to 8; groups are asymmetric unless said), `e4m3[-SCOPE]`,
    `e5m2[-SCOPE]`, `nvfp4`, `f16` and llama.cpp's types; `+rot` after a name rotates first.
    """
    plain, plus, rotation = name.partition("+")
    found = _plain_format(plain)
    if found is None or (plus and rotation != "rot") or (plus and found.static):
        raise ConfigError(
            key, name, f"one of {', '.join(FORMATS)}, or another intB-SCOPE[-gGROUP][-sym]"
        )
    return msgspec.structs.replace(found, name=name, rotated=True) if plus else found


def _plain_format(name: str) -> KvFormat | None:
    if name == "f16":
        return UNQUANTISED
    if name in GGML_BITS:
        return KvFormat(name=name, scheme=name, bits=GGML_BITS[name])  # type: ignore[arg-type]
    if name == "nvfp4":
        return KvFormat(name=name, scheme="nvfp4", bits=4.0 + 8.0 / _NVFP4_BLOCK)
    if match := _FLOAT.fullmatch(name):
        kind, scope = match[1], match[2] or "one"
        return KvFormat(name=name, scheme=kind, bits=8.0, scope=scope)  # type: ignore[arg-type]
    if match := _INTEGER.fullmatch(name):
        group = int(match[3]) if match[3] else None
        if group is not None and (match[2] not in ("channel", "token") or not group):
            return None
        return KvFormat(
            name=name,
            scheme="int",
            bits=float(match[1]),
            scope=match[2],  # type: ignore[arg-type]
            group=group,
            symmetric=group is None or match[4] is not None,
        )
    return None


def check_width(kv_format: KvFormat, head_dim: int, *, key: str = "format") -> None:
    """Raises ConfigError where the groups of channels do not divide the head's width."""
    block: int | None = None
    if kv_format.scheme in GGML_BITS:
        block = _GGML_BLOCK
    elif kv_format.scheme == "nvfp4":
        block = _NVFP4_BLOCK
    elif kv_format.scheme == "int" and kv_format.scope == "token":
        block = kv_format.group
    if block is not None and head_dim % block:
        fits = _divisors(head_dim)
        expected = f"groups that divide the head's width of {head_dim}: {fits}, not {block}"
        raise ConfigError(key, kv_format.name, expected)
    if kv_format.rotated and head_dim & (head_dim - 1):
        expected = f"no rotation: the head's width of {head_dim} is no power of two"
        raise ConfigError(key, kv_format.name, expected)


def _divisors(width: int) -> str:
    found: Iterable[int] = (n for n in (8, 16, 32, 64, 128, 256) if width % n == 0)
    return ", ".join(map(str, found)) or str(width)


FORMATS: Final[tuple[str, ...]] = (
    "f16",
    "int8-tensor",
    "int8-head",
    "int8-channel",
    "int8-token",
    "e4m3",
    "e4m3-tensor",
    "e4m3-token",
    "e5m2",
    "int4-token",
    *(f"int{bits}-channel-g{group}" for bits in (2, 3, 4, 5, 6) for group in (32, 64)),
    *(f"int{bits}-token-g{group}" for bits in (2, 3, 4, 5, 6) for group in (32, 64)),
    "nvfp4",
    *GGML_BITS,
)
"""Those that are tried where the user names none."""
