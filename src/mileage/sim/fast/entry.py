"""The compiled loop, ready to be called: out of a store on disk where that has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mileage.sim.fast import kernel
from mileage.sim.fast.jit import fingerprint, jit, stored

__all__ = ["entry"]

_run = jit(kernel.run)


@cache
def entry() -> Callable[..., Any]:
    """`kernel.run`, compiled: at its first call within about half a minute, later within a moment.

    numba keeps it beside this file, or in the user's own directory where that cannot be written,
    or in NUMBA_CACHE_DIR.
    """
    version = int(fingerprint(_run)[:15], 16)

    def run_version(*arguments: Any) -> int:
        # What it closes over is part of what a stored version is known by: so it must not close
        # over `_run`, which is known by another number in each process.
        return _run(*arguments) if version else -1

    return stored(run_version)
