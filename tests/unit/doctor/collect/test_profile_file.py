"""Exports of profilers: nsys, ncu, torch.profiler, py-spy, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mileage.core.errors import TraceError
from mileage.doctor.collect.kernel_weights import weighted_facts
from mileage.doctor.collect.profile_file import profile_reading
from mileage.doctor.collect.profile_reading import ProfileReading

SUMS = """Processing [run.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000000,3,1000000.0,1.0,1,2,0.0,"void gemm<float, 4>(int, float *)"
25.0,1000000,1,1000000.0,1.0,1,2,0.0,ncclDevKernel_AllReduce_Sum_bf16_RING_LL

Processing [run.sqlite] with [/opt/nsys/reports/cuda_api_sum.py]...

Time (%),Total Time (ns),Num Calls,Avg (ns),Name
60.0,6000,3,2000.0,cudaGraphLaunch_v10000
40.0,4000,8,500.0,cudaLaunchKernel
"""
TRACE = """Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Ctx,Strm,Name
1000,600,1,,NVIDIA H200 (0),1,7,"void gemm<float, 4>(int, float *)"
1800,200,2,0.002,NVIDIA H200 (0),1,9,[CUDA memcpy Host-to-Device]
"""
LONG = """==PROF== Connected to process 9
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","9","gemm","s","gpu__time_duration.sum","usecond","3,000"
"0","9","gemm","s","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","80"
"0","9","gemm","s","sm__cycles_active.avg","cycle","900"
"0","9","gemm","s","sm__cycles_elapsed.max","cycle","1,000"
"0","9","gemm","s","sm__warps_active.avg.pct_of_peak_sustained_active","%","50"
"1","9","norm","s","gpu__time_duration.sum","nsecond","1000000"
"1","9","norm","s","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","n/a"
"""
WIDE = """"ID","Kernel Name","Duration","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","msecond","%"
"0","gemm","0,5","40,0"
"1","gemm","1,5","80,0"
"""
STACKS = """Thread 0x7F (idle);run (core.py:10);schedule (scheduler.py:5) 30
Thread 0x7F (idle);run (core.py:11);encode (tokenizer.py:9) 60
Thread 0x80;worker (pool.py:3) 10
"""


def read(text: str | bytes) -> ProfileReading:
    data = text.encode() if isinstance(text, str) else text
    return profile_reading(data, place="x")


def torch_trace(*events: dict[str, Any]) -> str:
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": list(events)})


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur} | (
        {"args": args} if args else {}
    )


def test_sums_of_nsys_tell_kernels_and_launches_and_no_facts() -> None:
    reading = read(SUMS)
    assert reading.facts == {}
    assert [(k.total_s, k.count, k.kind) for k in reading.kernels] == [
        (0.003, 3, "matrix"),
        (0.001, 1, "communication"),
    ]
    assert reading.figures["communication_of_kernels_ratio"] == 0.25
    assert reading.figures["graph_launches_count"] == 3
    assert reading.figures["kernel_launches_count"] == 8


def test_json_of_nsys_is_the_same_as_its_csv() -> None:
    records = [
        {"Time (%)": 75.0, "Total Time (ns)": 3000000, "Instances": 3, "Name": "gemm"},
        {"Time (%)": 25.0, "Total Time (ns)": 1000000, "Instances": 1, "Name": "ncclKernel"},
    ]
    lines = "Processing [a.sqlite] with [cuda_gpu_kern_sum.py]...\n" + json.dumps(records, indent=1)
    assert [k.total_s for k in read(lines).kernels] == [0.003, 0.001]


def test_a_gpu_trace_of_nsys_is_a_timeline() -> None:
    reading = read(TRACE)
    assert reading.facts["signals"]["gpu_util_ratio"] == 0.8
    assert reading.figures["copy_h2d_ratio"] == pytest.approx(0.2)
    assert reading.figures["copy_h2d_bytes_per_s"] == pytest.approx(2e9)


def test_units_of_columns_count() -> None:
    in_us = TRACE.replace("(ns)", "(us)")
    assert read(in_us).window_s == pytest.approx(1000 * read(TRACE).window_s)  # type: ignore[operator]


def test_details_of_ncu_are_of_kernels_alone() -> None:
    gemm, norm = read(LONG).kernels
    assert (gemm.total_s, gemm.dram_active_ratio, gemm.sm_active_ratio) == (0.003, 0.8, 0.9)
    assert gemm.sm_occupancy_ratio == 0.45
    assert (norm.total_s, norm.dram_active_ratio) == (0.001, None)
    assert read(LONG).facts == {}


def test_raw_ncu_with_decimal_commas_and_a_row_of_units() -> None:
    (kernel,) = read(WIDE).kernels
    assert (kernel.total_s, kernel.count) == (0.002, 2)
    assert kernel.sm_throughput_ratio == pytest.approx(0.7)


def test_counters_and_a_timeline_tell_the_use_over_time() -> None:
    timeline = read(TRACE)
    facts = weighted_facts(timeline, read(LONG).kernels)
    assert facts["signals"]["dram_active_ratio"] == pytest.approx(0.6 * 0.8)
    assert facts["signals"]["sm_active_ratio"] == pytest.approx(0.6 * 0.9)


def test_kernels_without_counters_make_bounds() -> None:
    timeline = read(TRACE + '2000,400,3,,NVIDIA H200 (0),1,7,"other"\n')
    facts = weighted_facts(timeline, read(LONG).kernels)
    low, high = 600 * 0.8 / 1400, (600 * 0.8 + 400) / 1400
    assert facts["signals"]["dram_active_ratio"] == pytest.approx({"min": low, "max": high})


def test_too_few_counters_make_nothing() -> None:
    timeline = read(TRACE + '2000,4000,3,,NVIDIA H200 (0),1,7,"other"\n')
    assert weighted_facts(timeline, read(LONG).kernels) == {}


def test_a_trace_of_torch_is_a_timeline_in_microseconds() -> None:
    base = 5759666805111.5
    reading = read(
        torch_trace(
            event("kernel", "gemm", base, 60.25, device=0, stream=7, correlation=1),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", base + 80.25, 20, stream=8),
            event("cpu_op", "aten::mm", base - 50, 10),
            {"ph": "M", "name": "process_name", "pid": 0},
        )
    )
    assert reading.window_s == pytest.approx(100.25e-6)
    assert reading.facts["signals"]["gpu_util_ratio"] == pytest.approx(80.25 / 100.25)
    assert reading.figures["host_operators_s"] == pytest.approx(10e-6)


def test_stacks_of_py_spy_tell_whose_work_it_is() -> None:
    reading = read(STACKS)
    assert reading.figures["tokenising_ratio"] == 0.6
    assert reading.figures["scheduling_ratio"] == 0.3
    assert reading.figures["busiest_thread_ratio"] == 0.9
    assert reading.functions[0] == ("encode (tokenizer.py)", 0.6)


def test_command_lines_of_processes_are_no_frames() -> None:
    written = 'process 7:"python -c def scheduler():\n  pass\n";process 8:"python worker";'
    stacks = f"{written}thread (9);run (core.py:1);encode (tokenizer.py:2) 5\n"
    reading = read(stacks + stacks)
    assert reading.functions == (("encode (tokenizer.py)", 1.0),)
    assert reading.figures["tokenising_ratio"] == 1
    with pytest.raises(TraceError, match="x:5: the command line of a process has no end"):
        read(stacks + 'Thread 1;f (a.py:1) 1\nprocess 7:"python\n')


def test_a_counter_that_may_not_be_read_says_who_can_allow_it() -> None:
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"
    with pytest.raises(TraceError, match="NVreg_RestrictProfilingToAdminUsers"):
        read(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("hello\n", "x: no export that is known", id="no export"),
        pytest.param("", "x: no export that is known", id="nothing"),
        pytest.param(TRACE + "abc,1,,,,,,n\n", "x:4: start: got 'abc'", id="a start that is none"),
        pytest.param(TRACE + "1,2\n", "x:4: 2 cells, where the header has 8", id="a short row"),
        pytest.param(SUMS.replace("3000000", "-1"), "x:4: total time", id="a time below zero"),
        pytest.param(LONG.replace("3,000", "fast"), "x:3: gpu__time_duration.sum", id="no number"),
        pytest.param(LONG.replace("usecond", "parsec"), "expected a unit of time", id="no unit"),
        pytest.param(b"\x00\xff\xfe", "x:1: no text", id="binary"),
        pytest.param('{"traceEvents": [', "was the engine ended", id="a trace that is cut off"),
        pytest.param('{"traceEvents": [1]}', "x:1: record is no event", id="a record that is none"),
        pytest.param(
            torch_trace(event("kernel", "k", 1, 2), event("kernel", "k", -1, 2)),
            "x:2: record's ts: got -1",
            id="a time before all time",
        ),
        pytest.param(STACKS + "broken\n", "x:4: expected frames", id="no stack"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str | bytes, said: str) -> None:
    with pytest.raises(TraceError) as raised:
        read(text)
    assert said in str(raised.value)
