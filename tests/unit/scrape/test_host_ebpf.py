"""bpftrace's output: what version 0.17 prints for our program, and what comes besides."""

from __future__ import annotations

import pytest

from mileage.measure.tail_stage import Role
from mileage.scrape.host_ebpf import program, read_trace, refusal

ROLES: dict[int, tuple[Role, int]] = {27214: ("engine", 27200), 31: ("gateway", 30)}

PRINTED = """\
Attaching 6 probes...
clock 47243637287645
queue 27214 47243653154106 1804263
off 27214 4 47245904438495 308824076
queue 31 47246296093259 3934399
off 31 2 47246393080354 2952981


"""


def test_waits_and_stops_are_read() -> None:
    trace = read_trace(PRINTED.splitlines(), ROLES)
    assert trace.clock_s == pytest.approx(47243.637287645)
    assert (trace.lost, trace.unread) == (0, 0)
    assert [(p.cause, p.role, p.pid) for p in trace.pauses] == [
        ("run_queue", "engine", 27200),
        ("stopped", "engine", 27200),
        ("run_queue", "gateway", 30),
        ("page_fault", "gateway", 30),
    ]
    stop = trace.pauses[1]
    assert [stop.start_s, stop.end_s, stop.busy_s] == pytest.approx(
        [47245.904438495, 47246.213262571, 0.308824076]
    )


def test_a_thread_that_a_known_one_started_is_of_its_process() -> None:
    trace = read_trace(["thread 31 99", "queue 99 1000000 2000000"], ROLES)
    assert [(p.role, p.pid) for p in trace.pauses] == [("gateway", 30)]


@pytest.mark.parametrize(
    ("line", "lost", "unread"),
    [
        pytest.param("Lost 12 events", 12, 0, id="events lost, as older versions say it"),
        pytest.param("WARNING: Lost 7 events", 7, 0, id="events lost, as newer ones do"),
        pytest.param("Attached 6 probes", 0, 0, id="a newer version's greeting"),
        pytest.param("queue 27214 4724", 0, 1, id="cut off"),
        pytest.param("queue 5 1 2", 0, 1, id="a thread that nobody asked for"),
        pytest.param("off 27214 x 1 2", 0, 1, id="no number"),
        pytest.param("@q[31]: 5", 0, 1, id="a map"),
        pytest.param("", 0, 0, id="nothing"),
    ],
)
def test_other_lines_are_counted(line: str, lost: int, unread: int) -> None:
    trace = read_trace([line], ROLES)
    assert (trace.lost, trace.unread, trace.pauses) == (lost, unread, ())


@pytest.mark.parametrize(
    ("stderr", "why"),
    [
        pytest.param(
            "ERROR: bpftrace currently only supports running as the root user.\n",
            "bpftrace needs root",
            id="without root",
        ),
        pytest.param(
            "p.bt:1-2: ERROR: tracepoint not found: sched:sched_process_fork\n",
            "bpftrace: tracepoint not found: sched:sched_process_fork",
            id="without tracefs",
        ),
        pytest.param(
            "ERROR: Unknown error -1: couldn't set RLIMIT_MEMLOCK for bpftrace. If your program\n"
            "ERROR: Could not resolve symbol: x\n",
            "bpftrace: Could not resolve symbol: x",
            id="what it can do without is not the reason",
        ),
        pytest.param("", "bpftrace: it ended without a word", id="silence"),
    ],
)
def test_a_refusal_is_told_in_a_line(stderr: str, why: str) -> None:
    assert refusal(stderr) == why


def test_the_program_knows_its_threads() -> None:
    text = program([7, 3])
    assert "@t[3] = 1; @t[7] = 1;" in text
    assert text.count("{") == text.count("}")
