"""What is beyond usual: a host that is always busy is no cause, one that gets busy is."""

from __future__ import annotations

import pytest

from mileage.measure.tail_host import HostSample, Pause, ProcessTotals
from mileage.measure.tail_pauses import host_pauses
from mileage.measure.tail_usual import above_usual


def samples(waits_s: list[float], *, run_s: float = 0.03) -> list[HostSample]:
    """One every 100 ms; between two of them the engine ran, and waited for a CPU."""
    found = []
    ran = waited = 0.0
    for i, wait_s in enumerate([0.0, *waits_s]):
        ran, waited = ran + run_s, waited + wait_s
        process = ProcessTotals(role="engine", pid=7, stopped=False, run_s=ran, wait_s={7: waited})
        found.append(HostSample(at_s=i * 0.1, processes=(process,)))
    return found


def beyond(waits_s: list[float], *, run_s: float = 0.03) -> list[Pause]:
    taken = samples(waits_s, run_s=run_s)
    return above_usual(host_pauses(taken), taken)


def test_what_is_there_all_the_time_is_no_pause() -> None:
    assert beyond([0.04] * 30) == []


def test_what_comes_on_top_is() -> None:
    (pause,) = beyond([0.03] * 20 + [0.09] + [0.03] * 10)
    assert pause.busy_s == pytest.approx(0.06)
    assert pause.end_s == pytest.approx(2.1)


def test_on_a_host_that_is_idle_else_nothing_is_taken_off() -> None:
    (pause,) = beyond([0.0] * 20 + [0.09] + [0.0] * 10)
    assert pause.busy_s == pytest.approx(0.09)


def test_times_without_work_do_not_count_as_usual() -> None:
    quiet = [0.0] * 60
    taken = samples([0.04] * 20 + quiet)
    idle = [
        HostSample(
            at_s=s.at_s,
            processes=(
                ProcessTotals(
                    role="engine",
                    pid=7,
                    stopped=False,
                    run_s=min(s.processes[0].run_s or 0.0, 0.63),
                    wait_s=s.processes[0].wait_s,
                ),
            ),
        )
        for s in taken
    ]
    assert above_usual(host_pauses(idle), idle) == []


def test_of_few_samples_nothing_is_usual() -> None:
    assert len(beyond([0.04] * 5)) == 5


def test_stops_are_told_as_they_are() -> None:
    stop = Pause(cause="stopped", role="engine", start_s=0.0, end_s=3.0, busy_s=3.0, pid=7)
    assert above_usual([stop], samples([0.04] * 30)) == [stop]
