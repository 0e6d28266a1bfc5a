"""Each request is in the ledger exactly once, with its true end, whatever dies and whenever."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mileage.core.errors import LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.storage.feeder import Feeder
from mileage.storage.log import LogWriter
from tests.support.file_limit import file_size_limit
from tests.support.ledger_directory import drain, kill, segments, stored
from tests.support.ledger_records import BASE_UTC_NS, request, request_id, streamed, timeline

WORKERS = 3
workers = st.integers(0, WORKERS - 1)
indexes = st.integers(0, 1000)


class LedgerMachine(RuleBasedStateMachine):
    """Writers come, write, fail and die; feeders come, feed and die; nothing gets lost between."""

    @initialize(size=st.sampled_from([300, 1000, 100_000]))
    def begin(self, size: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ledger-"))
        self.segment_bytes_max = size
        self.now_s, self.runs, self.number = 0.0, 0, 0
        self.writers: dict[int, LogWriter] = {}
        self.flying: list[int] = []
        self.owner: dict[int, tuple[int, int]] = {}
        self.expected: dict[int, RequestTimeline] = {}
        self.intents: set[int] = set()
        self.feeder = Feeder(self.directory, batch_rows=3)
        self.counts: dict[str, int] = {}

    def writer(self, worker: int) -> LogWriter:
        if worker not in self.writers:
            self.runs += 1
            run_ns = BASE_UTC_NS + 1000 * self.runs
            self.writers[worker] = LogWriter(
                self.directory,
                worker,
                segment_bytes_max=self.segment_bytes_max,
                clock=lambda: self.now_s,
                utc_ns=lambda: run_ns,
            )
        return self.writers[worker]

    @rule(worker=workers)
    def dispatch(self, worker: int) -> None:
        self.number += 1
        number = self.number
        if self.writer(worker).intent(request(number, worker), BASE_UTC_NS):
            self.intents.add(request_id(number, worker))
        self.owner[number] = worker, id(self.writers[worker])
        self.flying.append(number)

    @precondition(lambda self: self.flying)
    @rule(index=indexes, stream=st.booleans(), disk_full=st.booleans())
    def finish(self, index: int, stream: bool, disk_full: bool) -> None:
        number = self.flying.pop(index % len(self.flying))
        worker, writer_id = self.owner[number]
        writer = self.writers.get(worker)
        if writer is None or id(writer) != writer_id:
            return  # died with its writer
        end = streamed(number, worker) if stream else timeline(number, worker)
        if disk_full:
            with file_size_limit(writer.path.stat().st_size + index % 60):
                written = writer.finish(end)
        else:
            written = writer.finish(end)
        if written:
            self.expected[end.id] = end

    @rule(worker=workers)
    def refuse(self, worker: int) -> None:
        self.number += 1
        end = timeline(self.number, worker, outcome="rejected", status=404, replica=None)
        if self.writer(worker).finish(end):
            self.expected[end.id] = end

    @rule(worker=workers, numbers=st.integers(1, 5))
    def one_turn(self, worker: int, numbers: int) -> None:
        writer = self.writer(worker)
        ends, records = [], []
        for _ in range(numbers):
            self.number += 1
            ends.append(timeline(self.number, worker))
            records.append(writer.encode_intent(request(self.number, worker), BASE_UTC_NS))
            records.append(writer.encode_finish(ends[-1]))
        if writer.write(records):
            self.expected.update({end.id: end for end in ends})
            self.intents.update(end.id for end in ends)

    @rule(seconds=st.sampled_from([0.01, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: self.writers)
    @rule(worker=workers, torn=st.integers(0, 60))
    def writer_dies(self, worker: int, torn: int) -> None:
        writer = self.writers.pop(worker, None)
        if writer is not None and writer._fd >= 0:
            os.write(writer._fd, writer.encode_finish(streamed(10**6, worker))[:torn])
            kill(writer)

    @precondition(lambda self: self.writers)
    @rule(worker=workers)
    def writer_closes(self, worker: int) -> None:
        writer = self.writers.pop(worker, None)
        if writer is not None:
            writer.close()

    @rule()
    def feed(self) -> None:
        self.feeder.step()

    @rule(limit=st.integers(0, 100_000))
    def feed_on_a_full_disk(self, limit: int) -> None:
        with file_size_limit(limit), suppress(LedgerError, OSError):
            self.feeder.step()

    @rule()
    def feeder_dies(self) -> None:
        self._count(self.feeder)
        self.feeder.stop()  # without a thread it feeds nothing: what it has not committed is gone
        self.feeder = Feeder(self.directory, batch_rows=3)

    @invariant()
    def nothing_is_stored_that_was_not_written(self) -> None:
        if hasattr(self, "directory") and self.number % 7 == 0:
            for row in stored(self.directory).values():
                assert row == self.expected.get(row.id) or row.outcome == "lost"

    def teardown(self) -> None:
        if not hasattr(self, "directory"):
            return
        try:
            self._end()
        finally:
            self.feeder.stop()
            for writer in self.writers.values():
                writer.close()
            shutil.rmtree(self.directory)

    def _end(self) -> None:
        for worker in list(self.writers):
            kill(self.writers.pop(worker)) if self.writers[worker]._fd >= 0 else None
        drain(self.feeder)
        self._count(self.feeder)
        found = stored(self.directory)
        lost = {i for i, row in found.items() if row.outcome == "lost"}
        assert {i: row for i, row in found.items() if i not in lost} == self.expected
        assert lost == self.intents - self.expected.keys()
        assert segments(self.directory) == []
        assert self.counts["rows_total"] == len(found)
        assert self.counts["lost_total"] == len(lost)
        assert self.counts["damaged_total"] == 0
        assert self.counts["conflicting_total"] == 0

    def _count(self, feeder: Feeder) -> None:
        status: Any = feeder.status()
        for key in ("rows_total", "lost_total", "damaged_total", "conflicting_total"):
            self.counts[key] = self.counts.get(key, 0) + getattr(status, key)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
