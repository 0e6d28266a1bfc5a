"""The processes that descend from this one: adopted where they lost their parent, and killed."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import time
from collections.abc import Collection
from typing import Final

import psutil

__all__ = ["adopt_orphans", "adopts_orphans", "die_with_parent", "kill_family"]

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_GONE_S: Final = 10.0


def adopt_orphans() -> None:
    """Make descendants whose parents die children of this process; on Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopts_orphans() -> bool:
    """Has this process said so?"""
    if sys.platform != "linux":
        return False
    found = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; on Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_family(keep: Collection[psutil.Process] = ()) -> None:
    """Kill the children but `keep`, and all that descends from them; for at most ten seconds."""
    due_s = time.monotonic() + _GONE_S
    while time.monotonic() < due_s:
        family = _family(keep)
        if not family:
            return
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=0.2)  # reaps


def _family(keep: Collection[psutil.Process]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        if child not in keep:
            found.append(child)
            with contextlib.suppress(psutil.Error):
                found += child.children(recursive=True)
    return found
