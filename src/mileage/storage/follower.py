"""LogFollower: reads all segments of the log in order and stores what they say; one pass a call."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import LedgerError, TraceError
from mileage.storage.log_reader import Decoded
from mileage.storage.record import BriefRow, IntentRow
from mileage.storage.segment import SegmentName
from mileage.storage.sqlite import RowBatch
from mileage.storage.store import LedgerStore
from mileage.storage.tail import SegmentTail

__all__ = ["LogFollower", "Totals"]

READS_MAX: Final = 64
"""Reads from one writer in one pass, so that a busy writer does not keep the others waiting."""

_log = logging.getLogger(__name__)


class Totals(msgspec.Struct):
    """What was done since the start; see FeederStatus."""

    rows: int = 0
    lost: int = 0
    repeated: int = 0
    conflicting: int = 0
    refused: int = 0
    damaged: int = 0
    unwritten: int = 0


class _Writer:
    """One writer's segments that are not deleted yet, in order."""

    def __init__(self) -> None:
        self.tails: list[SegmentTail] = []

    def close_intent(self, request_id: int) -> IntentRow | None:
        """Forget the intent in every segment; None if there is none."""
        intents = [tail.open.pop(request_id, None) for tail in self.tails]
        return next(filter(None, intents), None)


class LogFollower:
    """Moves the records of a log directory into a store.

    A segment is deleted when its writer is done with it, every record is committed, and so is the
    end of every request whose intent it holds: until then a replay finds all of it again, and
    storing a row twice changes nothing. Where a writer has ended and all its segments are read, its
    intents without an end are stored with the outcome `lost`.
    """

    def __init__(self, directory: Path, store: LedgerStore, *, batch_rows: int = 5000) -> None:
        self.totals = Totals()
        self.damage: str | None = None
        self.lag_bytes = 0
        self._directory, self._store, self._batch_rows = directory, store, batch_rows
        self._writers: dict[tuple[int, int], _Writer] = {}
        self._ignored: set[str] = set()
        self._batch = RowBatch()
        self._lost_unlogged = 0

    @property
    def pending_rows(self) -> int:
        """Rows read but not committed."""
        return len(self._batch)

    @property
    def tails(self) -> list[SegmentTail]:
        """The segments that are still needed."""
        return [tail for writer in list(self._writers.values()) for tail in list(writer.tails)]

    def oldest_open_utc_ns(self, since_utc_ns: int) -> int | None:
        """Arrival of the oldest request in flight, of those that arrived since; None: there is
        none."""
        arrivals = (intent[5] for tail in self.tails for intent in tail.open.values())
        return min((at for at in arrivals if at >= since_utc_ns), default=None)

    def step(self) -> bool:
        """One pass over the log. True if another one has something to do at once.

        Raises LedgerError or OSError after it did what it could. Nothing is lost by that: the next
        pass goes on where this one stopped.
        """
        self._commit()
        failed = self._discover()
        more = False
        all_known = failed is None
        for writer in self._writers.values():
            try:
                more |= self._follow(writer, all_known=all_known)
            except OSError as error:
                failed = error
        self._commit()
        self._delete_consumed()
        self.lag_bytes = sum(tail.lag_bytes() for tail in self.tails)
        if failed is not None:
            raise failed
        if not more:
            self._log_lost()
        return more

    def close(self) -> None:
        """Close the segments and the store."""
        for tail in self.tails:
            tail.close()
        self._writers.clear()
        self._store.close()

    def _discover(self) -> OSError | None:
        """Open segments that are new, in their order; return what kept one from being opened."""
        failed = None
        known = {tail.name for tail in self.tails}
        found = (SegmentName.parse(name) for name in os.listdir(self._directory))
        for name in sorted(name for name in found if name is not None and name not in known):
            if str(name) in self._ignored:
                continue
            path = self._directory / str(name)
            try:
                tail = SegmentTail(path, name)
            except (TraceError, LedgerError) as error:
                self.totals.damaged += 1
                self._note(error)
                self._ignored.add(str(name))
            except OSError as error:
                failed = error
            else:
                self._writers.setdefault((name.run_id, name.worker), _Writer()).tails.append(tail)
        return failed

    def _follow(self, writer: _Writer, *, all_known: bool) -> bool:
        """Read on in the writer's segments, in order. True if there is more to do at once."""
        if all(tail.done for tail in writer.tails):
            # The directory was listed after the last one was done, and a writer opens its next one
            # before it leaves one: unless one could not be opened, the writer has ended.
            if all_known:
                self._end(writer)
            return False
        reads = 0
        for tail in writer.tails:
            while not tail.done:
                decoded = tail.read()
                if decoded is None:
                    return False
                self._take(writer, tail, decoded)
                if len(self._batch) >= self._batch_rows:
                    self._commit()
                os.sched_yield()  # to the data plane, where this is its core too
                reads += 1
                if reads >= READS_MAX:
                    return True
        return True

    def _take(self, writer: _Writer, tail: SegmentTail, decoded: Decoded) -> None:
        """Put what was read into the batch and keep account of the intents."""
        older = [other.open for other in writer.tails if other is not tail and other.open]
        intents, pop = tail.open, tail.open.pop
        for intent in decoded.intents:
            intents[intent[0]] = intent
        for rows in (decoded.brief, decoded.charged, decoded.named, decoded.detailed):
            for row in rows:
                pop(row[0], None)
                for others in older:
                    others.pop(row[0], None)
        self._batch.brief += decoded.brief
        self._batch.charged += decoded.charged
        self._batch.named += decoded.named
        self._batch.detailed += decoded.detailed
        for reason, ids in decoded.dropped:
            self.totals.unwritten += len(ids)
            _log.error("the ends of %d requests could not be written: %s", len(ids), reason)
            gone = [intent for intent in map(writer.close_intent, ids) if intent is not None]
            self._batch.lost += [_lost(intent, "end_not_written") for intent in gone]
        for damage in decoded.damages:
            self._note(damage)
        self.totals.damaged += decoded.damages_total

    def _end(self, writer: _Writer) -> None:
        for tail in writer.tails:
            self._batch.lost += [_lost(intent, "gateway_died") for intent in tail.open.values()]
            tail.open.clear()

    def _commit(self) -> None:
        if not self._batch:
            return
        counts = self._store.insert(self._batch)
        self._batch = RowBatch()
        totals = self.totals
        totals.rows += counts.inserted + counts.lost
        totals.lost += counts.lost
        totals.repeated += counts.repeated
        totals.conflicting += counts.conflicting
        totals.refused += counts.refused
        self._lost_unlogged += counts.lost

    def _delete_consumed(self) -> None:
        """Delete segments that nothing needs any more; everything read so far is committed."""
        consumed = [tail for tail in self.tails if tail.done and not tail.open]
        if consumed:
            self._store.sync()
        for tail in consumed:
            tail.path.unlink(missing_ok=True)
            tail.close()
            key = (tail.name.run_id, tail.name.worker)
            self._writers[key].tails.remove(tail)
            if not self._writers[key].tails:
                del self._writers[key]

    def _note(self, error: TraceError | LedgerError) -> None:
        self.damage = str(error)
        _log.error("the request log is damaged: %s", error)

    def _log_lost(self) -> None:
        if self._lost_unlogged:
            _log.warning("%d requests have no end: stored as lost", self._lost_unlogged)
            self._lost_unlogged = 0


def _lost(intent: IntentRow, reason: str) -> BriefRow:
    """The row of a request whose end nobody recorded: what its client saw is not known."""
    unknown = (None, None, None, None, None, None, None)
    return (*intent, "lost", None, None, 0, reason, *unknown)
