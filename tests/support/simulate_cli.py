"""`mileage simulate` as it is typed: what it gives, its document, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

__all__ = ["document", "error_of", "simulate"]


def simulate(*arguments: str) -> Result:
    """The command with these arguments, run in this process."""
    return CliRunner().invoke(app, ["simulate", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    """The JSON document of a run that succeeds."""
    result = simulate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def error_of(*arguments: str) -> str:
    """What is told of a bad command line: one error, in one line, that names the option."""
    result = simulate(*arguments)
    assert isinstance(result.exception, ConfigError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)
