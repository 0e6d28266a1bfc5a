"""How long each phase of a start took, by the engine's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.log_line import LogLine
from mileage.doctor.collect.start_lines import MARKS, READY, SPANS, TOOK, PhaseSpan

__all__ = ["StartupPhases"]

_SECONDS: Final = r"([\d.]+) ?(?:s\b|secs?\b|seconds\b)"
_COMPILED: Final = re.compile(rf"Compiling a graph for .+? takes {_SECONDS}")
_CHECKPOINT: Final = re.compile(
    r"Filesystem type for checkpoints: (\w+)\. Checkpoint size: ([\d.]+) GiB"
)
_CACHES: Final[tuple[tuple[str, str], ...]] = (
    ("Directly load the compiled graph", "populated"),
    ("Directly load AOT compilation", "populated"),
    ("Compiling a graph for", "empty"),
    ("Cache the graph", "empty"),
)
_GIB: Final = re.compile(r"(?:Model loading took|model weights take) ([\d.]+) ?GiB")


class StartupPhases:
    """Collects the phases of the last start in a log; of several workers the slowest counts.

    `started_s`: when the process started, on the clock of the lines' `at_s`, where that is known:
    by whoever started it. A log alone does not tell.
    """

    def __init__(self, *, started_s: float | None = None) -> None:
        self._started_s = started_s
        self._phases: dict[str, float] = {}
        self._compiled: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._first_s: float | None = started_s
        self._last_s: float | None = started_s
        self._silent_s = 0.0
        self._ready_after_s: float | None = None
        self.marks: dict[str, float] = {}
        """When the first line of each StartMark was written, on the lines' clock."""
        self.compile_cache: str | None = None
        self.weights_gib: float | None = None
        """Of one worker."""
        self.checkpoint_gib: float | None = None
        self.filesystem: str | None = None

    def take(self, line: LogLine) -> bool:
        """Read a line; False where it tells no phase."""
        self._clock(line)
        text = line.text
        found = False
        for line_of in TOOK:
            match = line_of.pattern.search(text)
            if match is not None and (took := _seconds(match[1])):
                self._phases[line_of.signal] = max(self._phases.get(line_of.signal, 0.0), took)
                found = True
        if (match := _COMPILED.search(text)) is not None and (took := _seconds(match[1])):
            who = line.rank + line.worker
            self._compiled[who] = self._compiled.get(who, 0.0) + took
            found = True
        for words, state in _CACHES:
            if words in text:
                if (
                    self.compile_cache != "empty"
                ):  # one graph that had to be compiled: not all there
                    self.compile_cache = state
                found = True
        if (match := _GIB.search(text)) is not None:
            self.weights_gib = _seconds(match[1])
        if (match := _CHECKPOINT.search(text)) is not None:
            self.filesystem, self.checkpoint_gib = match[1].lower(), _seconds(match[2])
            found = True
        if "elapsed=" not in text:  # it says itself how long it took
            for span in SPANS:
                found |= self._span(line, span)
        self._mark(line)
        if any(words in text for words in READY):
            found = True
            # The web server's own lines have no time: it is that of the line before, or later.
            at_s = line.at_s if line.at_s is not None else self._last_s
            if at_s is not None and self._first_s is not None and self._ready_after_s is None:
                self._ready_after_s = at_s - self._first_s
        return found

    def signals(self) -> dict[str, Any]:
        """Phases in seconds. Where the process's start is not known, the whole start is at least
        the time from the first line to the one that says it is ready: the process is older."""
        signals: dict[str, Any] = dict(self._phases)
        total = signals.pop("torch_compile_s", None)
        dynamo = signals.get("startup_dynamo_s", 0.0)
        compiled = max(self._compiled.values(), default=None)
        if compiled is not None:
            signals["startup_compile_s"] = compiled
        elif total is not None:
            signals["startup_compile_s"] = max(0.0, total - dynamo)
        if self._started_s is not None and "imported" in self.marks:
            signals["startup_import_s"] = self.marks["imported"] - self._started_s
        if self._ready_after_s is not None and self._ready_after_s >= 0:
            known = self._started_s is not None
            total_s = self._ready_after_s
            signals["startup_total_s"] = total_s if known else {"min": total_s}
            signals["startup_silent_s"] = self._silent_s
        return signals

    def settings(self) -> Mapping[str, Any]:
        """Whether the compiler's cache was there, and where the weights lie."""
        found = {
            "storage.compile_cache": self.compile_cache,
            "storage.weights_fs": self.filesystem,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _clock(self, line: LogLine) -> None:
        if line.at_s is None or self._ready_after_s is not None:
            return
        if self._first_s is None:
            self._first_s = line.at_s
        if self._last_s is not None:
            self._silent_s = max(self._silent_s, line.at_s - self._last_s)
        self._last_s = line.at_s

    def _mark(self, line: LogLine) -> None:
        if line.at_s is None:
            return
        for mark in MARKS:
            if mark.words in line.text:
                self.marks.setdefault(mark.mark, line.at_s)

    def _span(self, line: LogLine, span: PhaseSpan) -> bool:
        """Time between two lines of one worker."""
        who = f"{span.signal} {span.engine} {line.rank} {line.worker}"
        if span.begins in line.text:
            if line.at_s is not None:
                self._begun[who] = line.at_s
            return True
        if span.ends not in line.text:
            return False
        begun = self._begun.pop(who, None)
        if begun is not None and line.at_s is not None and line.at_s >= begun:
            self._phases[span.signal] = max(self._phases.get(span.signal, 0.0), line.at_s - begun)
        return True


def _seconds(text: str) -> float | None:
    try:
        return float(text.rstrip("."))
    except ValueError:
        return None
