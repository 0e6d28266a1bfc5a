"""How long each phase of a start took, by the engine's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.log_line import LogLine

__all__ = ["StartupPhases"]

_SECONDS: Final = r"([\d.]+) ?(?:s\b|secs?\b|seconds\b)"
_PHASES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("startup_weights_s", re.compile(rf"Loading (?:model )?weights took {_SECONDS}")),
    (
        "startup_weights_s",
        re.compile(rf"Model loading took [\d.]+ ?Gi?B(?: memory)? and {_SECONDS}"),
    ),
    ("startup_weights_s", re.compile(rf"Load weight end\. elapsed={_SECONDS}")),
    ("startup_dynamo_s", re.compile(rf"Dynamo bytecode transform time: {_SECONDS}")),
    ("torch_compile_s", re.compile(rf"torch\.compile takes {_SECONDS} in total")),
    ("torch_compile_s", re.compile(rf"torch\.compile took {_SECONDS} in total")),
    ("startup_kv_profile_s", re.compile(rf"Memory profiling (?:takes|took) {_SECONDS}")),
    ("startup_graph_capture_s", re.compile(rf"Graph capturing finished in {_SECONDS}")),
    ("startup_graph_capture_s", re.compile(rf"Capture .*?graph end\. Time elapsed: {_SECONDS}")),
    ("startup_engine_init_s", re.compile(rf"init engine \(.*?\) took {_SECONDS}")),
    ("torch_compile_s", re.compile(rf"init engine .*?\(compilation: {_SECONDS}")),
)
_COMPILED: Final = re.compile(rf"Compiling a graph for .+? takes {_SECONDS}")
_READY: Final = (
    "Application startup complete",
    "The server is fired up and ready to roll",
    "server is listening on",
    "Uvicorn running on",
    "Started GRPCInferenceService",
)
_CHECKPOINT: Final = re.compile(
    r"Filesystem type for checkpoints: (\w+)\. Checkpoint size: ([\d.]+) GiB"
)
_P2P_FROM: Final = "generating GPU P2P access cache"
_P2P_TO: Final = "reading GPU P2P access cache"
_WEIGHTS_FROM: Final = "Load weight begin"
_WEIGHTS_TO: Final = "Load weight end"
_CACHES: Final[tuple[tuple[str, str], ...]] = (
    ("Directly load the compiled graph", "populated"),
    ("Directly load AOT compilation", "populated"),
    ("Compiling a graph for", "empty"),
    ("Cache the graph", "empty"),
)
_GIB: Final = re.compile(r"(?:Model loading took|model weights take) ([\d.]+) ?GiB")


class StartupPhases:
    """Collects the phases of the last start in a log; of several workers the slowest counts."""

    def __init__(self) -> None:
        self._phases: dict[str, float] = {}
        self._compiled: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._silent_s = 0.0
        self._ready_after_s: float | None = None
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
        for name, pattern in _PHASES:
            if (match := pattern.search(text)) is not None and (took := _seconds(match[1])):
                self._phases[name] = max(self._phases.get(name, 0.0), took)
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
        found |= self._span(line, "startup_p2p_check_s", _P2P_FROM, _P2P_TO)
        if "elapsed=" not in text:
            found |= self._span(line, "startup_weights_s", _WEIGHTS_FROM, _WEIGHTS_TO)
        if any(words in text for words in _READY):
            found = True
            # The web server's own lines have no time: it is that of the line before, or later.
            at_s = line.at_s if line.at_s is not None else self._last_s
            if at_s is not None and self._first_s is not None and self._ready_after_s is None:
                self._ready_after_s = at_s - self._first_s
        return found

    def signals(self) -> dict[str, Any]:
        """Phases in seconds. The whole start is at least the time from the first line to the one
        that says it is ready: the process is older than its first line."""
        signals: dict[str, Any] = dict(self._phases)
        total = signals.pop("torch_compile_s", None)
        dynamo = signals.get("startup_dynamo_s", 0.0)
        compiled = max(self._compiled.values(), default=None)
        if compiled is not None:
            signals["startup_compile_s"] = compiled
        elif total is not None:
            signals["startup_compile_s"] = max(0.0, total - dynamo)
        if self._ready_after_s is not None and self._ready_after_s >= 0:
            signals["startup_total_s"] = {"min": self._ready_after_s}
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

    def _span(self, line: LogLine, name: str, begin: str, end: str) -> bool:
        """Time between two lines of one worker."""
        who = f"{name} {line.rank} {line.worker}"
        if begin in line.text:
            if line.at_s is not None:
                self._begun[who] = line.at_s
            return True
        if end not in line.text:
            return False
        begun = self._begun.pop(who, None)
        if begun is not None and line.at_s is not None and line.at_s >= begun:
            self._phases[name] = max(self._phases.get(name, 0.0), line.at_s - begun)
        return True


def _seconds(text: str) -> float | None:
    try:
        return float(text.rstrip("."))
    except ValueError:
        return None
