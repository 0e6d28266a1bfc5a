"""What an engine's process tells: how it was started, with what around it, what it wrote."""

from __future__ import annotations

import msgspec

from mileage.doctor.collect.launch_arguments import launch_facts
from mileage.doctor.collect.merge_facts import SourcedFacts
from mileage.doctor.collect.startup_log import log_facts

__all__ = ["EngineProcess", "process_facts"]


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of an engine, or the root of several."""

    words: tuple[str, ...]
    """Its command line."""
    environment: dict[str, str] | None = None
    """Of its variables those that say how it works; None where they cannot be read."""
    log: tuple[str, ...] = ()
    """What it wrote, where that goes into a file: the begin and the end of it."""


def process_facts(
    process: EngineProcess, *, place: str, version: str | None = None
) -> tuple[SourcedFacts, ...]:
    """Facts by source: its log, its command line, the defaults of what that leaves out.

    `place` names it in the sources; `version` is the engine's where it is known: defaults differ.
    """
    told = log_facts(process.log)
    version = version or told.get("engine", {}).get("version")
    launched = launch_facts(
        process.words,
        process.environment,
        version=version,
        environment_is_whole=process.environment is not None,
    )
    if launched.engine is None:
        return ()
    parts = (
        SourcedFacts(source=f"log of {place}", standing="reported", document=told),
        SourcedFacts(
            source=f"command line of {place}", standing="configured", document=launched.configured
        ),
        SourcedFacts(
            source=f"defaults of {launched.engine}",
            standing="default",
            document=launched.defaults,
        ),
    )
    return tuple(part for part in parts if part.document)
