"""The texts and values that engines write settings with, read as values of the vocabulary."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

__all__ = [
    "as_count",
    "as_flag",
    "as_number",
    "as_ratio",
    "as_text",
    "kv_dtype",
    "weight_dtype",
]

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})
_NONE: Final = frozenset({"", "none", "null"})
_LIMIT: Final = 1e15
_SUFFIXES: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 1024, "M": 1024**2, "G": 1024**3}
"""Of counts on vLLM's command line: `1k` is 1000, `1K` is 1024."""
_DTYPES: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "uint8": "int8",
}


def as_number(value: object) -> float | None:
    """A finite number, also from its text; None for anything else, True and False too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value.strip().replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) and abs(number) <= _LIMIT else None


def as_count(value: object) -> int | None:
    """A whole number of 0 or more, also from its text, `8k` and `8K` among them."""
    if isinstance(value, str) and value.strip()[-1:] in _SUFFIXES and value.strip()[:-1]:
        number = as_number(value.strip()[:-1])
        number = None if number is None else number * _SUFFIXES[value.strip()[-1]]
    else:
        number = as_number(value)
    return int(number) if number is not None and number >= 0 and number.is_integer() else None


def as_ratio(value: object) -> float | None:
    """A number in 0..1, also from its text."""
    number = as_number(value)
    return number if number is not None and 0 <= number <= 1 else None


def as_flag(value: object) -> bool | None:
    """True or False, also from its text."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _TRUE else False if word in _FALSE else None


def as_text(value: object) -> str | None:
    """A text that says something: not empty, not `None`."""
    if not isinstance(value, str) or value.strip().lower() in _NONE:
        return None
    return value.strip()


def kv_dtype(value: object) -> str | None:
    """Type of the KV cache as vLLM spells it: `auto`, `fp8`, ..."""
    text = as_text(value)
    return None if text is None else text.removeprefix("torch.")


def weight_dtype(value: object) -> str | None:
    """Type of the weights in the vocabulary's words; None for `auto` and what we cannot tell."""
    text: Any = as_text(value)
    if text is None or text == "auto":
        return None
    plain = text.removeprefix("torch.")
    return _DTYPES.get(plain, plain if plain in _DTYPES.values() else None)
