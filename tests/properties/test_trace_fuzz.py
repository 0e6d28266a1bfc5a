"""Trace readers: any bytes give requests or a TraceError, and what is written is read back."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError, TraceError
from mileage.workload.read_options import ReadOptions
from mileage.workload.readers.servegen import ServeGenClient, servegen_requests
from mileage.workload.source import read_trace
from mileage.workload.synthetic.spelling import parse_synthetic
from mileage.workload.trace_check import fault_of
from mileage.workload.trace_request import TraceRequest
from mileage.workload.writers import WriteFormat, writer_of
from tests.support.traces import AZURE, BURSTGPT, MOONCAKE

HEADS = [
    b"",
    AZURE[0],
    BURSTGPT[0],
    b"time,isl,osl,endpoint,session",
    b"arrived_s,prompt_tokens,output_tokens,prefix_blocks,block_tokens",
    MOONCAKE[0],
    b'{"arrived_s":0,"prompt_tokens":1,"output_tokens":1}',
]
PIECES = st.one_of(
    st.sampled_from([*AZURE[1:], *BURSTGPT[1:], *MOONCAKE, b",", b'"', b"\r", b"\x00", b"{}"]),
    st.sampled_from([b"nan", b"1e400", b"-1", b"0", b"5,6,7", b"9" * 20, b'{"arrived_s":']),
    st.sampled_from([b"2024-05-10 00:00:00,1,2", b"2024-05-10 00:00:00.009930+00:00,1,2"]),
    st.binary(max_size=30),
)
LINES = st.lists(st.lists(PIECES, max_size=4).map(b"".join), max_size=8)
FORMATS = [None, "azure", "burstgpt", "csv", "mileage-csv", "mileage-jsonl", "mooncake"]


@settings(max_examples=400)
@given(head=st.sampled_from(HEADS), lines=LINES, kind=st.sampled_from(FORMATS), keep=st.booleans())
def test_any_bytes_are_requests_or_a_fault(
    head: bytes, lines: list[bytes], kind: str | None, keep: bool
) -> None:
    options = ReadOptions(format=kind, keep_failed=keep)  # type: ignore[arg-type]
    found: list[TraceRequest] = []
    with contextlib.suppress(TraceError):
        found.extend(read_trace([head, *lines], path="t", options=options))
    assert [fault for r in found if (fault := fault_of(r))] == []
    assert all(a.arrived_s <= b.arrived_s for a, b in pairwise(found))


@given(trace=LINES, dataset=st.one_of(st.binary(max_size=60), st.just(b'{"0":{}}')))
def test_any_client_files_are_requests_or_a_fault(trace: list[bytes], dataset: bytes) -> None:
    client = ServeGenClient(
        number=0, trace_path="t", trace=trace, dataset_path="d", dataset=dataset
    )
    with contextlib.suppress(TraceError):
        next(servegen_requests([client]), None)


SPELLED = [
    *("rate=5", "duration=1m", "duration=9x", "prompt=fixed:5", "prompt=lognormal:1:2:3", "cv=2"),
    *("cv=nan", "arrivals=gamma", "tenants=3:1e9", "images=0.5:zipf:1:1:9", "turns=2:5s"),
    *("seed=-1", "seed=9", "requests=0", "block-tokens=0", "prefixes=1:1:1:1"),
]


@given(
    text=st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(SPELLED),
            max_size=5,
        ).map(",".join),
    )
)
def test_any_spelling_is_a_workload_or_a_fault(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_synthetic(text)


NAMES = st.text(min_size=1, max_size=8)
IDS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceRequest]:
    times = sorted(draw(st.lists(st.floats(0, 1e9), min_size=1, max_size=6)))
    made = []
    for arrived_s in times:
        size = draw(st.integers(1, 64))
        blocks = draw(st.lists(IDS, max_size=5))
        made.append(
            TraceRequest(
                arrived_s=arrived_s,
                prompt_tokens=draw(st.integers(max(1, size * len(blocks)), 10**6)),
                output_tokens=draw(st.integers(1, 10**6)),
                tenant=draw(NAMES),
                model=draw(st.none() | NAMES),
                endpoint=draw(st.sampled_from(["chat", "embeddings", "messages"])),
                stream=draw(st.booleans()),
                output_tokens_max=draw(st.none() | st.integers(1, 99)),
                prefix_blocks=tuple(blocks),
                block_tokens=size if blocks else 0,
                content_id=draw(st.none() | IDS),
                conversation=draw(st.none() | IDS),
                adapter=draw(st.none() | NAMES),
                priority=draw(st.none() | st.sampled_from(["high", "low"])),
                image_patches=draw(st.integers(0, 999)),
            )
        )
    return made


@pytest.mark.parametrize("kind", ["mileage-csv", "mileage-jsonl"])
@given(trace=traces())
def test_what_is_written_is_read_back_exactly(kind: WriteFormat, trace: list[TraceRequest]) -> None:
    lines = b"".join(writer_of(kind)(trace)).split(b"\n")
    assert list(read_trace(lines, path="t")) == trace
