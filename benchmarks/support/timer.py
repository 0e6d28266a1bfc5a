"""A timer to the microsecond, as a descriptor that event loops can wait for.

The timeouts of epoll and of libuv come in whole milliseconds, which is the whole of a short step;
the standard library has timerfd from Python 3.13 on only.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

__all__ = ["Timer"]

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Timer:
    """Readable when its time on the monotonic clock has come; `rest` makes it wait again."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def arm(self, at_ns: int, period_ns: int = 0) -> None:
        """Set it to a time, and to every `period_ns` after it where that is not 0."""
        at_ns = max(1, at_ns)  # 0 would disarm it
        spec = _Itimerspec(*divmod(period_ns, 10**9), *divmod(at_ns, 10**9))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def rest(self) -> None:
        """Take note that its time has come; harmless where it has not."""
        with suppress(BlockingIOError):
            os.read(self._fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)
