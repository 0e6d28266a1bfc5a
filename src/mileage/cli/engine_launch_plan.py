"""The command of a launch, with the flags of a plan where one is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.plan_file import read_plan_document
from mileage.cli.planned_model import planned_model
from mileage.core.errors import ConfigError
from mileage.engines.configuration.configuration import Configuration, PlanWarning
from mileage.engines.configuration.generate import PlannedEngine, configure
from mileage.engines.launch.launch_command import (
    LAUNCH_KINDS,
    LaunchCommand,
    LaunchKind,
    free_port,
    launch_command,
)

__all__ = ["planned_command"]

_PLANNED: Final[dict[LaunchKind, PlannedEngine]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
}
_PROGRAM_WORDS: Final[dict[PlannedEngine, int]] = {"vllm": 2, "sglang": 3, "llamacpp": 1}
"""Of a planned command, before the engine's own arguments: `vllm serve`, `python3 -m MODULE`."""


def planned_command(
    engine: str,
    words: Sequence[str],
    plan: Path | None,
    *,
    executable: str | None,
    python: str | None,
    model: str | None,
    host: str | None,
    port: int | None,
) -> tuple[LaunchCommand, tuple[PlanWarning, ...]]:
    """The command of `engine`, and what of the plan it has no words for.

    The plan's flags come first, so that `words`, the engine's own, win; model, host and port go
    before the plan's. Raises ConfigError.
    """
    kind = next((each for each in LAUNCH_KINDS if each == engine), None)
    if kind is None:
        raise ConfigError("ENGINE", engine, f"one of {', '.join(LAUNCH_KINDS)}")
    if plan is None:
        command = launch_command(
            kind,
            words,
            executable=executable,
            python=python,
            model=model,
            host=host,
            port=port,
        )
        return command, ()
    if kind not in _PLANNED:
        raise ConfigError("--plan", str(plan), f"none for {kind}: it has the flags that you give")
    found = _configured(_PLANNED[kind], plan, model, host, port)
    flags = found.commands[0][_PROGRAM_WORDS[_PLANNED[kind]] :]
    command = launch_command(kind, [*flags, *words], executable=executable, python=python)
    return msgspec.structs.replace(command, environment=found.environment), found.warnings


def _configured(
    engine: PlannedEngine, path: Path, model: str | None, host: str | None, port: int | None
) -> Configuration:
    given = {"model": model, "host": host, "port": free_port(host) if port == 0 else port}
    over = [
        f"{key}={msgspec.json.encode(value).decode()}"
        for key, value in given.items()
        if value is not None
    ]
    document, plan = read_plan_document(path, over)
    try:
        if plan.instances != 1:
            raise ConfigError("instances", plan.instances, "1: each has a launch of its own")
        return configure(engine, plan, planned_model(engine, plan))
    except ConfigError as error:
        raise document.placed(error) from None
