"""Any run is saved and read back: equal in all but the last half nanosecond of its tokens."""

from __future__ import annotations

import io
from array import array
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import TraceError
from mileage.core.request import Endpoint
from mileage.loadgen.run_meta import RunMeta
from mileage.loadgen.saved_run import SavedRun, read_run, write_run
from mileage.measure.call_record import CallOutcome, CallRecord, Phase

times_s = st.floats(0.0, 1e6)
maybe_s = st.none() | times_s
texts = st.text(max_size=20)
tokens = st.none() | st.integers(0, 10**9)
META = RunMeta(
    mileage_version="0",
    started_at_utc="2026-01-01T00:00:00Z",
    start_s=0.0,
    end_s=1.0,
    elapsed_s=1.0,
)


@st.composite
def records(draw: st.DrawFn) -> CallRecord:
    moments = sorted(draw(st.lists(times_s, max_size=8)))
    count = len(moments)
    events = draw(st.lists(st.integers(1, 2**32 - 1), min_size=count, max_size=count))
    return CallRecord(
        index=draw(st.integers(0, 2**40)),
        phase=draw(st.sampled_from(get_args(Phase))),
        outcome=draw(st.sampled_from(get_args(CallOutcome))),
        scheduled_s=draw(times_s),
        arm=draw(texts),
        taken_s=draw(maybe_s),
        sent_s=draw(maybe_s),
        ended_s=draw(maybe_s),
        token_times_s=array("d", moments),
        token_events=array("I", events),
        endpoint=draw(st.sampled_from(get_args(Endpoint))),
        stream=draw(st.booleans()),
        tenant=draw(texts),
        model=draw(st.none() | texts),
        error=draw(st.none() | texts),
        status=draw(st.none() | st.integers(100, 599)),
        prompt_tokens=draw(tokens),
        output_tokens=draw(tokens),
    )


def packed(run: SavedRun) -> bytes:
    file = io.BytesIO()
    write_run(file, run)
    return file.getvalue()


@given(st.lists(records(), max_size=5))
def test_a_run_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, given: list[CallRecord]
) -> None:
    path = tmp_path_factory.getbasetemp() / "property.mlrun"
    data = packed(SavedRun(meta=META, records=given))
    path.write_bytes(data)
    run = read_run(path)
    assert packed(run) == data
    for before, after in zip(given, run.records, strict=True):
        for name in CallRecord.__struct_fields__:
            if name == "token_times_s":
                apart = [
                    abs(a - b)
                    for a, b in zip(before.token_times_s, after.token_times_s, strict=True)
                ]
                assert max(apart, default=0.0) <= 1e-9
            else:
                assert getattr(after, name) == getattr(before, name)


@given(cut=st.integers(0, 10_000), flip=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_file_never_passes_for_another_run(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, bit: int
) -> None:
    record = CallRecord(index=0, phase="measured", outcome="ok", scheduled_s=0.5)
    data = packed(SavedRun(meta=META, records=[record] * 3))
    path: Path = tmp_path_factory.getbasetemp() / "damaged.mlrun"
    path.write_bytes(data[: cut % len(data)])
    with pytest.raises(TraceError):
        read_run(path)
    flipped = bytearray(data)
    flipped[10 + flip % (len(data) - 10)] ^= 1 << bit
    path.write_bytes(bytes(flipped))
    with pytest.raises(TraceError):
        read_run(path)
