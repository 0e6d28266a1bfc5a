"""TimerFd: a timer to the microsecond, as a descriptor that event loops can wait for.

The timeouts of epoll and of libuv come in whole milliseconds, which is as long as a fast answer;
the standard library has timerfd from Python 3.13 on only.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

__all__ = ["TimerFd"]

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class TimerFd:
    """Readable when its time on the monotonic clock has come; `rest` makes it wait again."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._at_spec = ctypes.byref(self._spec)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def arm(self, at_s: float) -> None:
        """Set it to a time of time.monotonic(); one that is past makes it readable at once."""
        self.arm_ns(int(at_s * 1e9))

    def arm_ns(self, at_ns: int, period_ns: int = 0) -> None:
        """The same in nanoseconds, and for every `period_ns` after it where that is not 0."""
        spec = self._spec
        spec.interval_s, spec.interval_ns = divmod(period_ns, 1_000_000_000)
        spec.value_s, spec.value_ns = divmod(max(1, at_ns), 1_000_000_000)  # 0 would disarm it
        if self._settime(self._fd, _TFD_TIMER_ABSTIME, self._at_spec, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def rest(self) -> None:
        """Take note that its time has come; harmless where it has not."""
        with suppress(BlockingIOError):
            os.read(self._fd, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)
