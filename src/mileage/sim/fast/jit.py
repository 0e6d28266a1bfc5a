"""How functions are compiled: those of this package, and ones that the Python path calls itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, TypeVar

_njit: Any = None
MISSING: str | None = "numba is not installed (pip install 'mileage[sim]')"
"""Why nothing can be compiled; None: it can."""
with suppress(ImportError):
    from numba import njit

    _njit, MISSING = njit, None

__all__ = ["MISSING", "compiled", "fingerprint", "inlined", "jit", "stored"]

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """The function, compiled at its first call; without numba the function itself.

    Floating point stays as Python has it: no reordering, no fused operations.
    """
    if _njit is None:
        return function
    fast: F = _njit(error_model="numpy")(function)
    return fast


def inlined(function: F) -> F:
    """As `jit`, for a function that is called in one place: it is compiled as a part of its caller,
    which takes a fraction of the time."""
    if _njit is None:
        return function
    fast: F = _njit(error_model="numpy", inline="always")(function)
    return fast


def compiled(function: Callable[..., Any], **callees: Any) -> Any:
    """A function or method of the Python path, compiled; `callees`: what stands in for functions
    that it calls. The `self` of a method is a record with fields of the same names."""
    assert isinstance(function, FunctionType)
    scope = {**function.__globals__, **callees}
    defaults, closure = function.__defaults__, function.__closure__
    return jit(FunctionType(function.__code__, scope, function.__name__, defaults, closure))


def stored(function: F) -> F:
    """As `jit`, with the result kept on disk where there is a place to write."""
    if _njit is None:
        return function
    try:
        fast: F = _njit(error_model="numpy", cache=True)(function)
    except RuntimeError:  # nothing can be written, neither beside it nor at home
        return jit(function)
    return fast


def fingerprint(function: Any) -> str:
    """Of the code and the constants of a function and all that it calls: what a compiled version
    that was stored is known by (numba itself looks at the function's own file only)."""
    parts: list[str] = []
    seen: set[int] = set()
    _describe(function, parts, seen)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _describe(function: Any, parts: list[str], seen: set[int]) -> None:
    function = getattr(function, "py_func", function)
    if id(function) in seen:
        return
    seen.add(id(function))
    code = function.__code__
    parts.append(f"{function.__qualname__} {code.co_code.hex()} {code.co_consts!r}")
    for name in sorted(code.co_names):
        value = function.__globals__.get(name)
        if isinstance(value, int | float):
            parts.append(f"{name} {value!r}")
        elif isinstance(getattr(value, "py_func", value), FunctionType):
            _describe(value, parts, seen)
