"""Pauses out of samples: stops, waits for a CPU, faults, and what the host did meanwhile."""

from __future__ import annotations

import pytest

from mileage.measure.tail_host import (
    CpuTimes,
    HostSample,
    Pause,
    PressureTotals,
    ProcessTotals,
    SoftnetTotals,
)
from mileage.measure.tail_pauses import host_pauses


def sample(at_s: float, *, host: dict[str, object] | None = None, **process: object) -> HostSample:
    fields: dict[str, object] = {"role": "engine", "pid": 7, "stopped": False, **process}
    one = ProcessTotals(**fields)  # type: ignore[arg-type]
    return HostSample(at_s=at_s, processes=(one,), **(host or {}))  # type: ignore[arg-type]


def only(pauses: list[Pause]) -> Pause:
    (found,) = pauses
    assert (found.role, found.pid) == ("engine", 7)
    return found


def test_a_stop_lasts_from_half_way_before_it_was_seen_to_half_way_after() -> None:
    states = [False, False, True, True, False, False]
    samples = [sample(i * 0.1, stopped=state) for i, state in enumerate(states)]
    found = only(host_pauses(samples))
    assert found.cause == "stopped"
    assert [found.start_s, found.end_s, found.busy_s] == pytest.approx([0.15, 0.35, 0.2])


def test_a_stop_that_does_not_end_lasts_to_the_last_sample() -> None:
    samples = [sample(i * 0.1, stopped=i >= 2) for i in range(5)]
    assert only(host_pauses(samples)).end_s == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("waits", "start_s", "busy_s", "thread"),
    [
        pytest.param({1: 0.03}, 1.0, 0.03, 1, id="a part of the window"),
        pytest.param({1: 0.02, 2: 0.06}, 1.0, 0.06, 2, id="the thread that waited longest"),
        pytest.param({1: 0.4}, 0.7, 0.4, 1, id="a wait that began before the window"),
    ],
)
def test_waits_for_a_cpu(
    waits: dict[int, float], start_s: float, busy_s: float, thread: int
) -> None:
    samples = [
        sample(1.0, wait_s=dict.fromkeys(waits, 5.0), involuntary_switches=3),
        sample(1.1, wait_s={tid: 5.0 + s for tid, s in waits.items()}, involuntary_switches=8),
    ]
    found = only(host_pauses(samples))
    assert found.cause == "run_queue"
    assert [found.start_s, found.end_s, found.busy_s] == pytest.approx([start_s, 1.1, busy_s])
    assert found.detail == f"thread {thread}, 5 times preempted"


def test_a_thread_that_is_new_has_no_wait_yet() -> None:
    assert host_pauses([sample(1.0, wait_s={1: 5.0}), sample(1.1, wait_s={2: 9.0})]) == []


def test_another_process_with_the_same_role_is_not_compared() -> None:
    assert host_pauses([sample(1.0, wait_s={1: 5.0}), sample(1.1, pid=8, wait_s={1: 9.0})]) == []


def io(seconds: float) -> dict[str, object]:
    return {"pressure": PressureTotals(memory_s=2.0, io_s=seconds)}


def test_major_faults_are_the_time_that_the_host_waited() -> None:
    samples = [
        sample(1.0, host=io(3.0), major_faults=10, minor_faults=100),
        sample(1.1, host=io(3.06), major_faults=14, minor_faults=100),
    ]
    found = only(host_pauses(samples))
    assert (found.cause, found.detail) == ("page_fault", "4 major and 0 minor faults")
    assert found.busy_s == pytest.approx(0.06)


def test_what_the_kernel_tells_of_the_process_goes_before_the_hosts() -> None:
    samples = [
        sample(1.0, host=io(3.0), major_faults=10, blocked_s=1.0),
        sample(1.1, host=io(3.06), major_faults=14, blocked_s=1.02),
    ]
    assert only(host_pauses(samples)).busy_s == pytest.approx(0.02)


def test_minor_faults_cost_what_one_was_measured_to_cost() -> None:
    samples = [
        sample(1.0, major_faults=0, minor_faults=0),
        sample(1.1, major_faults=0, minor_faults=20_000),
    ]
    assert host_pauses(samples) == []
    assert only(host_pauses(samples, minor_fault_s=2e-6)).busy_s == pytest.approx(0.04)


def test_without_a_major_fault_it_is_the_hosts_pressure() -> None:
    samples = [
        sample(1.0, host=io(3.0), major_faults=1),
        sample(1.1, host=io(3.05), major_faults=1),
    ]
    assert only(host_pauses(samples)).cause == "pressure"


def test_of_the_cpus_only_the_one_that_it_runs_on_counts() -> None:
    def cpus(softirq_s: float, steal_s: float, received: int, dropped: int) -> dict[str, object]:
        return {
            "cpus": (CpuTimes(9.0 + softirq_s * 5, 0.0), CpuTimes(softirq_s, steal_s)),
            "softnet": SoftnetTotals(dropped, 4),
            "net_rx_softirqs": received,
        }

    samples = [
        sample(1.0, host=cpus(1.0, 2.0, 100, 0), cpu=1),
        sample(1.1, cpu=1),  # one that has no host figures
        sample(1.2, host=cpus(1.03, 2.05, 160, 2), cpu=1),
    ]
    softirq, steal = host_pauses(samples)
    assert (softirq.cause, steal.cause) == ("softirq", "steal")
    assert [softirq.busy_s, steal.busy_s] == pytest.approx([0.03, 0.05])
    assert softirq.detail == "60 rounds of receiving on the host, 2 packets dropped"
    assert (softirq.start_s, softirq.end_s) == (1.0, 1.2)


def test_nothing_is_told_of_no_samples() -> None:
    assert host_pauses([]) == []
    assert host_pauses([sample(1.0, stopped=True)]) != []
