"""bpftrace: the program that times each wait of given threads in the kernel, and what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mileage.measure.tail_host import Pause
from mileage.measure.tail_stage import Cause, Role

__all__ = ["KernelTrace", "program", "read_trace", "refusal"]

_LEAST_NS: Final = 500_000
_STOPPED: Final = 0x4 | 0x8
_UNINTERRUPTIBLE: Final = 0x2
"""Task states of include/linux/sched.h."""

_PROGRAM: Final = """\
BEGIN {{ {threads} printf("clock %llu\\n", nsecs); }}
tracepoint:sched:sched_process_fork /@t[args->parent_pid]/ {{
  @t[args->child_pid] = 1;
  printf("thread %d %d\\n", args->parent_pid, args->child_pid);
}}
tracepoint:sched:sched_wakeup /@t[args->pid]/ {{ @q[args->pid] = nsecs; }}
tracepoint:sched:sched_wakeup_new /@t[args->pid]/ {{ @q[args->pid] = nsecs; }}
tracepoint:sched:sched_switch {{
  if (@t[args->prev_pid]) {{
    if ((args->prev_state & 0xff) == 0) {{ @q[args->prev_pid] = nsecs; }}
    @o[args->prev_pid] = nsecs;
    @s[args->prev_pid] = args->prev_state & 0xff;
  }}
  if (@t[args->next_pid]) {{
    $n = nsecs;
    $q = @q[args->next_pid];
    $o = @o[args->next_pid];
    $s = @s[args->next_pid];
    if ($o && $s != 0 && $n - $o >= {least}) {{
      if ($s & {watched}) {{ printf("off %d %d %llu %llu\\n", args->next_pid, $s, $o, $n - $o); }}
    }}
    if ($q && $n - $q >= {least}) {{
      printf("queue %d %llu %llu\\n", args->next_pid, $q, $n - $q);
    }}
    delete(@q[args->next_pid]);
    delete(@o[args->next_pid]);
  }}
}}
END {{ clear(@t); clear(@q); clear(@o); clear(@s); }}
"""
"""A thread is ready from its waking, or from being preempted (state 0, or above the low byte)."""

_ATTACHED: Final = re.compile(r"Attach(?:ing|ed) \d+ probes?")
_LOST: Final = re.compile(r"(?:WARNING: )?Lost (\d+) events")
_HARMLESS: Final = "RLIMIT_MEMLOCK"
"""It goes on without; kernels since 5.11 need no such limit."""
_ROOT_ONLY: Final = "only supports running as the root user"


class KernelTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace gave. Times are seconds of the kernel's clock that `clock_s` was read from."""

    pauses: tuple[Pause, ...]
    clock_s: float | None
    """The kernel's clock when the trace began; None: it did not begin."""
    lost: int = 0
    """Events that were dropped by the kernel: so much may be missing."""
    unread: int = 0
    """Lines that are none of ours."""


def program(tids: Iterable[int]) -> str:
    """The bpftrace program for these threads, and those that they start."""
    return _PROGRAM.format(
        threads=" ".join(f"@t[{tid}] = 1;" for tid in sorted(tids)),
        least=_LEAST_NS,
        watched=_STOPPED | _UNINTERRUPTIBLE,
    )


def read_trace(lines: Iterable[str], roles: dict[int, tuple[Role, int]]) -> KernelTrace:
    """The pauses that bpftrace printed; `roles` are role and process by thread.

    Of threads that a known one started role and process are the same. Lines of its own (attached
    probes, lost events) are understood, and what is cut off or foreign is counted, not guessed.
    """
    known = dict(roles)
    pauses: list[Pause] = []
    clock_s: float | None = None
    lost = unread = 0
    for line in lines:
        words = line.split()
        if not words or _ATTACHED.match(line):
            continue
        if (match := _LOST.match(line)) is not None:
            lost += int(match[1])
            continue
        numbers = _numbers(words[1:])
        if words[0] == "clock" and len(numbers) == 1:
            clock_s = numbers[0] / 1e9
        elif words[0] == "thread" and len(numbers) == 2 and numbers[0] in known:
            known[numbers[1]] = known[numbers[0]]
        elif words[0] == "queue" and len(numbers) == 3 and numbers[0] in known:
            pauses.append(_pause("run_queue", numbers, known))
        elif words[0] == "off" and len(numbers) == 4 and numbers[0] in known:
            cause: Cause = "stopped" if numbers[1] & _STOPPED else "page_fault"
            pauses.append(_pause(cause, (numbers[0], *numbers[2:]), known))
        else:
            unread += 1
    return KernelTrace(pauses=tuple(pauses), clock_s=clock_s, lost=lost, unread=unread)


def refusal(stderr: str) -> str:
    """Why bpftrace did not start, in one line."""
    if _ROOT_ONLY in stderr:
        return "bpftrace needs root"
    for line in stderr.splitlines():
        if "ERROR" in line and _HARMLESS not in line:
            return f"bpftrace: {line.partition('ERROR:')[2].strip() or line.strip()}"
    last = stderr.strip().splitlines()[-1:] or ["it ended without a word"]
    return f"bpftrace: {last[0].strip()}"


def _numbers(words: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(word) for word in words) if all(map(str.isdecimal, words)) else ()


def _pause(cause: Cause, numbers: Sequence[int], known: dict[int, tuple[Role, int]]) -> Pause:
    tid, start_ns, length_ns = numbers
    role, pid = known[tid]
    return Pause(
        cause=cause,
        role=role,
        start_s=start_ns / 1e9,
        end_s=(start_ns + length_ns) / 1e9,
        busy_s=length_ns / 1e9,
        pid=pid,
        detail=f"thread {tid}, by eBPF",
    )
