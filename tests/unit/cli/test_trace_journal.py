"""A journal as a trace: workers are put together by the wall clock, and damage is an error."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from mileage.cli.trace_source import open_trace
from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.snapshot import dump_state
from mileage.core.errors import TraceError
from mileage.core.events import Arrived, Finished, ReplicaUp
from mileage.storage.journal_writer import JournalWriter, new_header
from mileage.workload.trace_request import TraceRequest
from tests.support.journals import request

BEGAN_UTC_NS = 1_764_428_000_000_000_000


def write(directory: Path, worker: int, *, began_s: float, began_at_utc_ns: int) -> None:
    """Three requests, one each second of the worker's own clock, served in half a second."""
    config = ControlConfig()
    controller = Controller(("gpu-a",), config=config, random=Random(1))
    header = new_header(
        version="0",
        worker=worker,
        replicas=("gpu-a",),
        lacks={},
        config=msgspec.json.encode(config).decode(),
        seed=1,
    )
    writer = JournalWriter(
        directory,
        header,
        segment_bytes_max=1 << 16,
        bytes_max=1 << 24,
        clock=lambda: began_s,
        utc_ns=lambda: began_at_utc_ns,
    )
    writer.start(lambda: dump_state(controller))
    up = ReplicaUp("gpu-a", ("llama",))
    writer.handled(began_s, up, tuple(controller.handle(up, began_s)))
    for number in range(3):
        at_s = began_s + number
        arrived = Arrived(request(number << 6 | worker, arrived_s=at_s))
        writer.handled(at_s, arrived, tuple(controller.handle(arrived, at_s)))
        finished = Finished(number << 6 | worker, 100 + number, None, 20 + worker)
        writer.handled(at_s + 0.5, finished, tuple(controller.handle(finished, at_s + 0.5)))
    writer.close()


def read(path: Path) -> list[TraceRequest]:
    with open_trace(str(path)) as trace:
        found = list(trace)
    assert trace.tally.format == "journal"
    return found


def test_one_workers_journal(tmp_path: Path) -> None:
    write(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    found = read(tmp_path)
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(100, 20), (101, 20), (102, 20)]
    assert [r.arrived_s for r in found] == pytest.approx([0.0, 1.0, 2.0])
    (segment,) = tmp_path.rglob("*.mjl")
    assert read(segment) == found


def test_workers_are_put_together_by_the_wall_clock(tmp_path: Path) -> None:
    write(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    write(tmp_path, 1, began_s=7000.0, began_at_utc_ns=BEGAN_UTC_NS + 250_000_000)
    found = read(tmp_path)
    assert [r.output_tokens for r in found] == [20, 21, 20, 21, 20, 21]
    assert [r.arrived_s for r in found] == pytest.approx([0.0, 0.25, 1.0, 1.25, 2.0, 2.25])


def test_damage_is_told(tmp_path: Path) -> None:
    write(tmp_path, 0, began_s=50.0, began_at_utc_ns=BEGAN_UTC_NS)
    (segment,) = tmp_path.rglob("*.mjl")
    content = bytearray(segment.read_bytes())
    content[-60] ^= 255
    segment.write_bytes(content)
    with pytest.raises(TraceError, match=r"\.mjl"):
        read(tmp_path)
