"""A journal as a trace: workers are put together by the wall clock, and damage is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.cli.trace_source import open_trace
from mileage.core.errors import TraceError
from mileage.workload.trace_request import TraceRequest
from tests.support.served_journal import BEGAN_UTC_NS, write_journal


def read(path: Path) -> list[TraceRequest]:
    with open_trace(str(path)) as trace:
        found = list(trace)
    assert trace.tally.format == "journal"
    return found


def test_one_workers_journal(tmp_path: Path) -> None:
    write_journal(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    found = read(tmp_path)
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(100, 20), (101, 20), (102, 20)]
    assert [r.arrived_s for r in found] == pytest.approx([0.0, 1.0, 2.0])
    (segment,) = tmp_path.rglob("*.mjl")
    assert read(segment) == found


def test_workers_are_put_together_by_the_wall_clock(tmp_path: Path) -> None:
    write_journal(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    write_journal(tmp_path, 1, began_s=7000.0, began_at_utc_ns=BEGAN_UTC_NS + 250_000_000)
    found = read(tmp_path)
    assert [r.output_tokens for r in found] == [20, 21, 20, 21, 20, 21]
    assert [r.arrived_s for r in found] == pytest.approx([0.0, 0.25, 1.0, 1.25, 2.0, 2.25])


def test_damage_is_told(tmp_path: Path) -> None:
    write_journal(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    (segment,) = tmp_path.rglob("*.mjl")
    content = bytearray(segment.read_bytes())
    content[-60] ^= 255
    segment.write_bytes(content)
    with pytest.raises(TraceError, match=r"\.mjl"):
        read(tmp_path)


def test_a_client_may_have_asked_for_more_than_there_is(tmp_path: Path) -> None:
    write_journal(tmp_path, output_tokens_max=10**18)
    assert [r.output_tokens_max for r in read(tmp_path)] == [999_999_999] * 3
