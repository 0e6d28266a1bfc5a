"""How a start goes by the engine's log and by what it answers: its phases, and its settings."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.doctor.collect.log_line import log_lines
from mileage.doctor.collect.log_settings import LogSettings
from mileage.doctor.collect.startup_phases import StartupPhases

__all__ = ["StartTimes", "StartWatch"]


class StartTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each phase of a start; None: not seen.

    From the process's start: `import_s` until the program has read its arguments, `server_up_s`
    until it answers that it is healthy, `first_token_s`, `ready_s` until it is warm too. The
    others last so long: `engine_process_s` from the arguments until the engine's own process
    works, `weights_s`, `p2p_check_s`, `dynamo_s` (tracing), `compile_s`, `kv_profile_s`,
    `graph_capture_s`, `engine_init_s` (all once the weights are there), `warm_up_s`.
    `silent_s`: the longest time without a line.
    """

    import_s: float | None = None
    engine_process_s: float | None = None
    weights_s: float | None = None
    p2p_check_s: float | None = None
    dynamo_s: float | None = None
    compile_s: float | None = None
    kv_profile_s: float | None = None
    graph_capture_s: float | None = None
    engine_init_s: float | None = None
    server_up_s: float | None = None
    first_token_s: float | None = None
    warm_up_s: float | None = None
    ready_s: float | None = None
    silent_s: float | None = None


class StartWatch:
    """Reads the lines of one start with the doctor's own readers.

    Lines get the time at which they came: an engine's clock has whole seconds, and some have none.
    """

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._phases = StartupPhases(started_s=started_s)
        self._settings = LogSettings()
        self._moments: dict[str, float] = {}

    def take(self, text: str, now_s: float) -> None:
        """Read a line that came now."""
        for line in log_lines((text,)):
            self._phases.take(msgspec.structs.replace(line, at_s=now_s))
            self._settings.take(line)

    def reached(self, moment: str, now_s: float) -> None:
        """It has come to `server_up`, `first_token` or `ready`: the first time counts."""
        self._moments.setdefault(moment, now_s - self._started_s)

    def moment_s(self, moment: str) -> float | None:
        """When that was, in seconds since the start."""
        return self._moments.get(moment)

    def setting(self, name: str) -> Any:
        """What the log says of a setting of the doctor's vocabulary; None: nothing."""
        return self._settings.document().get("settings", {}).get(name)

    def version(self) -> str | None:
        """The engine's version by its log."""
        found = self._settings.document().get("engine", {}).get("version")
        return found if isinstance(found, str) else None

    def phase(self) -> str:
        """What it is at, in words."""
        marks = self._phases.marks
        return next((told for mark, told in _PHASES if mark in marks), "starting its program")

    def times(self) -> StartTimes:
        """What is known by now."""
        marks, signals = self._phases.marks, self._phases.signals()
        phases = {
            name: took
            for name in StartTimes.__struct_fields__
            if isinstance(took := signals.get(f"startup_{name}"), float)
        }
        for name in ("server_up", "first_token", "ready"):
            if name in self._moments:
                phases[f"{name}_s"] = self._moments[name]
        if "imported" in marks and "engine" in marks:
            phases["engine_process_s"] = marks["engine"] - marks["imported"]
        if "server_up" in self._moments and "ready" in self._moments:
            phases["warm_up_s"] = self._moments["ready"] - self._moments["server_up"]
        return StartTimes(**phases)


_PHASES: Final = (
    ("serving", "its server is up"),
    ("loading", "loading, or what follows on it"),
    ("engine", "starting its engine process"),
    ("imported", "starting"),
)
