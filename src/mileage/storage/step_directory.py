"""StepDirectory: the steps that engines wrote into the ledger directory, window by window."""

from __future__ import annotations

import logging
import os
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from mileage.core.errors import LedgerError
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_record import STEP_BYTES_MAX, STEP_LENGTH
from mileage.storage.request_rows import NS_PER_S
from mileage.storage.window_books import StepTotals

__all__ = ["STEPS_NAME", "StepDirectory", "begin_step_directory"]

STEPS_NAME: Final = "steps"
"""The directory in that of the ledger."""
GATEWAY_NAME: Final = "gateway"
"""The file in it that tells engines the tag of the gateway whose requests they can name."""
USES_MAX: Final = 1_000_000
"""Uses of steps that wait for their windows; beyond, the oldest are given up, and the windows that
they overlap are shared out without steps."""
LOST_MAX: Final = 10_000
"""Times of a replica in which steps were lost that wait for their windows."""
KEPT_S: Final = 86_400.0
"""A file that was read to its end, and not written to for so long, is deleted."""

_log = logging.getLogger(__name__)
_decode: Final = msgspec.msgpack.Decoder(EngineStep).decode


def begin_step_directory(directory: Path, tag: str) -> None:
    """Make the place in which engines leave their steps, and tell them the gateway's tag.

    Raises LedgerError where it cannot be made.
    """
    path = directory / GATEWAY_NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="ascii", errors="replace").strip() != tag:
            made = path.with_suffix(f".{os.getpid()}")
            made.write_text(f"{tag}\n", encoding="ascii")
            made.chmod(0o644)  # engines may run as somebody else
            made.replace(path)
    except OSError as error:
        raise LedgerError(str(path), f"cannot be written: {error.strerror}") from error


class _StepFile:
    """One file, read on as far as windows ask for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = False
        self.ended = False
        self._file: BinaryIO = path.open("rb")
        self._next: EngineStep | None = None

    def take(self, before_ns: int) -> list[EngineStep]:
        """The steps that began before the time, in the file's order: that of their beginnings."""
        taken = []
        while not self.damaged:
            step = self._next or self._read()
            if step is None or step.started_at_utc_ns >= before_ns:
                self._next = step
                break
            self._next = None
            taken.append(step)
        self.ended = self._next is None
        return taken

    def close(self) -> None:
        self._file.close()

    def _read(self) -> EngineStep | None:
        """The next step; None where it is not there, or not whole yet."""
        at = self._file.tell()
        head = self._file.read(STEP_LENGTH.size)
        if len(head) == STEP_LENGTH.size:
            (length,) = STEP_LENGTH.unpack(head)
            payload = self._file.read(length) if length <= STEP_BYTES_MAX else b""
            if len(payload) == length:
                try:
                    return _decode(payload)
                except msgspec.DecodeError as error:
                    self._damage(f"byte {at}: {error}")
                    return None
            if length > STEP_BYTES_MAX:
                self._damage(f"byte {at}: a step of {length} bytes")
                return None
        self._file.seek(at)
        return None

    def _damage(self, what: str) -> None:
        _log.error("%s: no engine step at %s; the rest is not read", self.path, what)
        self.damaged = True


class StepDirectory:
    """Implements StepSource for the files `*.steps` of a directory, which engines append to.

    Steps of one file are in the order of their beginnings, and written within a few seconds of
    their end. What is damaged in a file hides the rest of it: windows from there on are shared out
    without steps. So is a window in which an engine lost steps: half of them would leave those
    requests without a share. Reading never raises for what files contain.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _StepFile] = {}
        self._steps: dict[str, deque[EngineStep]] = {}
        self._settled: dict[str, int] = {}
        self._given_up_ns: dict[str, int] = {}
        self._lost: dict[str, deque[EngineStep]] = {}
        self._uses = 0
        self._read_until_ns = 0
        self.steps_total = 0
        """Read for windows that were not settled."""
        self.lost_total = 0
        """That engines could not tell, as they said."""

    def totals(self, replica: str, start_ns: int, end_ns: int) -> StepTotals:
        """The steps of the replica that overlap the window, in the order of their beginnings."""
        self._settled.setdefault(replica, start_ns)
        if end_ns > self._read_until_ns:
            self._read(end_ns)
        if start_ns < self._given_up_ns.get(replica, 0):
            return StepTotals()
        if any(_overlaps(gap, start_ns, end_ns) for gap in self._lost.get(replica, ())):
            return StepTotals()
        found = [step for step in self._steps.get(replica, ()) if _overlaps(step, start_ns, end_ns)]
        return StepTotals(sorted(found, key=_began))

    def settled(self, replica: str, until_ns: int) -> None:
        """Forget the steps of the replica that ended before."""
        self._settled[replica] = until_ns
        steps = self._steps.get(replica)
        while steps and _ended(steps[0]) <= until_ns:
            self._uses -= len(steps.popleft().uses) + 1
        if steps is not None and not steps:
            del self._steps[replica]
        lost = self._lost.get(replica)
        while lost and _ended(lost[0]) <= until_ns:
            lost.popleft()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _read(self, before_ns: int) -> None:
        """Read all files on, up to the steps that began at the time or later."""
        self._discover(before_ns)
        for file in self._files.values():
            for step in file.take(before_ns):
                self._take(step)
        self._read_until_ns = before_ns
        while self._uses > USES_MAX:
            self._give_up()

    def _take(self, step: EngineStep) -> None:
        """Keep a step, or what stands for lost ones, until its windows are settled."""
        if _ended(step) <= self._settled.get(step.replica, 0):
            return
        if not step.lost_steps:
            self._steps.setdefault(step.replica, deque()).append(step)
            self._uses += len(step.uses) + 1
            self.steps_total += 1
            return
        if not self.lost_total:
            _log.warning("%s lost engine steps: their windows are estimated", step.replica)
        self.lost_total += step.lost_steps
        self._lost.setdefault(step.replica, deque(maxlen=LOST_MAX)).append(step)

    def _discover(self, before_ns: int) -> None:
        """Open files that are new; let go of those that nobody writes to any more."""
        try:
            names = {name for name in os.listdir(self._directory) if name.endswith(".steps")}
        except FileNotFoundError:
            names = set()
        for name in sorted(names - self._files.keys()):
            try:
                self._files[name] = _StepFile(self._directory / name)
            except OSError as error:
                _log.error("%s cannot be read: %s", name, error.strerror)
        for name, file in list(self._files.items()):
            if name not in names or (file.ended and self._is_old(file.path, before_ns)):
                file.close()
                file.path.unlink(missing_ok=True)
                del self._files[name]

    def _is_old(self, path: Path, now_ns: int) -> bool:
        try:
            return path.stat().st_mtime < now_ns / NS_PER_S - KEPT_S
        except FileNotFoundError:
            return True

    def _give_up(self) -> None:
        """Forget the oldest step of those that wait."""
        replica = min(self._steps, key=lambda name: self._steps[name][0].started_at_utc_ns)
        step = self._steps[replica].popleft()
        if replica not in self._given_up_ns:
            _log.warning("too many engine steps wait for their windows: the oldest are given up")
        self._given_up_ns[replica] = _ended(step)
        self._uses -= len(step.uses) + 1
        if not self._steps[replica]:
            del self._steps[replica]


def _began(step: EngineStep) -> int:
    return step.started_at_utc_ns


def _ended(step: EngineStep) -> int:
    return step.started_at_utc_ns + step.duration_ns


def _overlaps(step: EngineStep, start_ns: int, end_ns: int) -> bool:
    return step.started_at_utc_ns < end_ns and _ended(step) > start_ns
