"""A profiler that is run: within a time, in a process group of its own, which ends with us."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mileage.core.errors import EngineError

__all__ = ["run_profiler"]

_GRACE_S: Final = 15.0
"""Time to write what was recorded, after an interrupt."""
_TAIL_BYTES: Final = 2000


def run_profiler(words: Sequence[str], *, stdout: Path, log: Path, timeout_s: float) -> None:
    """Run it and wait. What it prints is written to `stdout`, what it says beside it to `log`.

    On Ctrl-C, or past its time, its whole group is interrupted, and killed after 15 s.

    Raises:
        EngineError: it is not there, takes longer, or ends with an error: its last words are told.
    """
    name = words[0]
    try:
        with stdout.open("ab") as out, log.open("ab") as err:
            process = subprocess.Popen(  # noqa: S603 -- a list of words, no shell
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
    except OSError as error:
        raise EngineError(name, f"cannot be run: {error.strerror or error}") from None
    try:
        code = process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise EngineError(name, f"took longer than {timeout_s:g} s and was ended") from None
    finally:
        _end(process)
    if code:
        raise EngineError(name, f"ended with {code}{_last_words(log) or _last_words(stdout)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of its group."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path) -> str:
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f": {' / '.join(text.splitlines()[-4:])}" if text else ""
