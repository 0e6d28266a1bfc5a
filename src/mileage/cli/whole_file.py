"""whole_file(): a file that is there as a whole under its name, or as it was before."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

from mileage.core.errors import ConfigError, FileError

__all__ = ["check_place", "whole_file"]

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_NAME_CHARACTERS: Final = 50  # of the name that is shown in the partial file's: at most 200 bytes


def check_place(path: Path, *, key: str) -> None:
    """Raises ConfigError, of `key`, where it is seen already that `path` cannot be written."""
    target = Path(os.path.realpath(path))
    if _before(path, target, key) is None and not target.parent.is_dir():
        raise ConfigError(key, str(path), f"a file in a directory: {target.parent} is none")


@contextlib.contextmanager
def whole_file(path: Path, *, key: str) -> Iterator[BinaryIO]:
    """What is written to the file in the block takes the place of `path` when the block ends.

    Until then `path` is as it was. If an error, Ctrl-C, SIGTERM or SIGHUP ends the block, it stays
    so, and what was written is removed. A link stays one. A device or a pipe is written to as it
    comes. Raises ConfigError, of `key`, for a path that cannot be written; FileError where writing
    fails later, as on a full disk.
    """
    target = Path(os.path.realpath(path))
    before = _before(path, target, key)
    if before is not None and not stat.S_ISREG(before):
        with _written(path), _opened(path, path, key, os.O_WRONLY, 0) as file:
            yield file
        return
    partial = target.with_name(f".{target.name[:_NAME_CHARACTERS]}.{secrets.token_hex(4)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    mode = 0o666 if before is None else 0o600
    with _ended_by_signals():
        try:
            with _written(path), _opened(path, partial, key, flags, mode) as file:
                yield file
                file.flush()
                if before is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(before))
                os.fsync(file.fileno())
                partial.replace(target)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _before(path: Path, target: Path, key: str) -> int | None:
    """The mode of what is there; None for nothing. Raises ConfigError."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, key, error) from None
    if stat.S_ISDIR(mode):
        raise ConfigError(key, str(path), "the name of a file: this is a directory")
    if not os.access(target, os.W_OK):
        raise ConfigError(key, str(path), "a file that can be written (Permission denied)")
    return mode


def _opened(path: Path, at: Path, key: str, flags: int, mode: int) -> BinaryIO:
    try:
        return open(at, "wb", opener=lambda name, _: os.open(name, flags | os.O_CLOEXEC, mode))
    except OSError as error:
        raise _unusable(path, key, error) from None


def _unusable(path: Path, key: str, error: OSError) -> ConfigError:
    return ConfigError(key, str(path), f"a file that can be written ({error.strerror or error})")


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read has had enough
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise FileError(str(path), message) from None


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals that would end the process at once end it by SystemExit, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for ending in ours:
            signal.signal(ending, signal.SIG_IGN)  # a second one would come amid the cleaning
        raise SystemExit(128 + number)

    ours = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, end)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
