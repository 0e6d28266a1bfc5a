"""Timelines of GPUs: busy time, gaps, steps, graphs, communication that nothing hides."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.gpu_timeline import (
    GpuActivity,
    GpuTimeline,
    HostCall,
    StepMark,
    timeline_reading,
)
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.facts import decode_facts


def kernel(
    start_us: int, end_us: int, name: str = "gemm", *, device: int = 0, call: int | None = None
) -> GpuActivity:
    return GpuActivity(start_us * 1000, end_us * 1000, name, "kernel", device, 7, call)


def read(timeline: GpuTimeline) -> ProfileReading:
    reading = timeline_reading(timeline, tool="test", place="x")
    decode_facts(reading.facts)
    return reading


def decode_steps(*, period_us: int, busy_us: int, graphs: bool, count: int = 6) -> GpuTimeline:
    """Steps of one kernel that starts 10 us after the host launched it."""
    calls, activities, marks = [], [], []
    for i in range(count):
        at = i * period_us
        name = "cudaGraphLaunch" if graphs else "cudaLaunchKernel"
        calls.append(HostCall((at + 5) * 1000, (at + 9) * 1000, name, i))
        activities.append(kernel(at + 15, at + 15 + busy_us, call=i))
        marks.append(StepMark(at * 1000, (at + 20) * 1000, "execute_context_0(0)_generation_8(8)"))
    return GpuTimeline(activities=activities, calls=calls, marks=marks)


def test_a_gpu_is_busy_while_any_of_its_streams_is() -> None:
    reading = read(GpuTimeline(activities=[kernel(0, 60), kernel(40, 70), kernel(90, 100)]))
    assert reading.facts["signals"]["gpu_util_ratio"] == 0.8
    assert reading.figures["gpu_gaps_count"] == 1
    assert reading.figures["gpu_gap_longest_s"] == pytest.approx(20e-6)


def test_each_device_has_its_own_share_of_one_window() -> None:
    activities = [kernel(0, 100), kernel(0, 25, device=1)]
    assert read(GpuTimeline(activities=activities)).facts["signals"]["gpu_util_ratio"] == [1, 0.25]


def test_steps_have_a_period_and_a_gap_on_the_gpu() -> None:
    signals = read(decode_steps(period_us=100, busy_us=30, graphs=True)).facts["signals"]
    assert signals["step_time_s"] == pytest.approx(100e-6)
    assert signals["step_host_gap_s"] == pytest.approx(70e-6)
    assert signals["graph_replay_ratio"] == 1


def test_work_that_was_launched_ahead_leaves_no_gap() -> None:
    signals = read(decode_steps(period_us=100, busy_us=100, graphs=True)).facts["signals"]
    assert signals["step_host_gap_s"] == 0


def test_a_wait_for_requests_does_not_make_a_longer_step() -> None:
    steps = decode_steps(period_us=100, busy_us=30, graphs=False, count=8)
    late = 5_000_000
    last = steps.marks[-1]
    marks = [*steps.marks, StepMark(last.start_ns + late, last.end_ns + late, last.name)]
    signals = read(GpuTimeline(activities=steps.activities, calls=steps.calls, marks=marks)).facts[
        "signals"
    ]
    assert signals["step_time_s"] == pytest.approx(100e-6)
    assert signals["graph_replay_ratio"] == 0


def test_steps_with_prompts_are_no_decode_steps() -> None:
    steps = decode_steps(period_us=100, busy_us=30, graphs=False)
    marks = [
        StepMark(m.start_ns, m.end_ns, "execute_context_2(900)_generation_8(8)")
        for m in steps.marks
    ]
    signals = read(GpuTimeline(activities=steps.activities, calls=steps.calls, marks=marks)).facts[
        "signals"
    ]
    assert "graph_replay_ratio" not in signals


def test_without_marks_no_time_of_a_step_is_made_up() -> None:
    reading = read(
        GpuTimeline(activities=decode_steps(period_us=9, busy_us=2, graphs=False).activities)
    )
    assert set(reading.facts["signals"]) == {"gpu_util_ratio"}
    assert "marks of steps" in reading.notes[0]


def test_communication_that_is_hidden_is_told_from_what_is_waited_for() -> None:
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    reading = read(GpuTimeline(activities=[kernel(0, 60), kernel(40, 100, name)]))
    assert reading.figures["communication_ratio"] == pytest.approx(0.6)
    assert reading.figures["communication_alone_ratio"] == pytest.approx(0.4)


def test_a_trace_without_a_gpu_says_so() -> None:
    reading = read(GpuTimeline(activities=[], calls=[HostCall(0, 5, "cudaLaunchKernel", 1)]))
    assert reading.facts == {}
    assert "nothing of a GPU" in reading.notes[0]
