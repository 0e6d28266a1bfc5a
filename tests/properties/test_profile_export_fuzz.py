"""Exports of profilers: whatever they hold, the reader reads it or says what is wrong with it."""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite

from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import TraceError
from mileage.doctor.collect.profile_file import profile_reading
from mileage.doctor.facts import decode_facts

CELLS = st.one_of(
    st.sampled_from(["", "0", "12", "1,234", "0,5", "1e30", "-1", "n/a", "%", "nsecond", '"', "k"]),
    st.text(max_size=8),
)
HEADERS = st.sampled_from(
    [
        "Start (ns),Duration (us),CorrId,Device,Strm,Name",
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid",
        "Time (%),Total Time (ns),Instances,Name",
        "Time (%),Total Time (parsec),Num Calls,Name",
        '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
        '"ID","Kernel Name","gpu__time_duration.sum","sm__cycles_active.avg"',
        "Process ID,Kernel Name,Invocations,Metric Name,Metric Unit,Average",
    ]
)
ROWS = st.lists(st.lists(CELLS, max_size=8), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "M", 3]),
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "user_annotation"]),
        "name": st.sampled_from(["execute_context_0(0)_generation_1(1)", "cudaGraphLaunch"])
        | VALUES,
        "pid": VALUES,
        "ts": st.integers(0, 1000) | VALUES,
        "dur": st.integers(0, 1000) | VALUES,
        "args": st.fixed_dictionaries({"correlation": st.integers(0, 5)}) | VALUES,
    },
)


def check(data: bytes) -> None:
    with suppress(TraceError):
        reading = profile_reading(data, place="x")
        decode_facts(reading.facts)
        assert all(isfinite(value) for value in reading.figures.values())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(HEADERS, ROWS, st.sampled_from([",", ";", "\t"]), HEADERS, ROWS)
def test_any_tables(
    header: str, rows: list[list[str]], delimiter: str, other: str, others: list[list[str]]
) -> None:
    lines = [header, *map(",".join, rows), "", other, *map(",".join, others)]
    check("\n".join(lines).replace(",", delimiter).encode("utf-8", "replace"))


@given(st.lists(EVENTS, max_size=12))
def test_any_trace(events: list[object]) -> None:
    check(json.dumps({"traceEvents": events}).encode())
    check(json.dumps(events).encode())


@given(st.lists(st.dictionaries(st.sampled_from(["Total Time (ns)", "Instances", "Name"]), VALUES)))
def test_any_records(records: list[object]) -> None:
    check(json.dumps(records).encode())
