"""`mileage doctor --fix`: try at once what a gateway can change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from mileage.cli.admin_call import admin_error, call_admin
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.core.errors import EngineError
from mileage.doctor.finding import Diagnosis
from mileage.doctor.hot_fixes import HotFix, hot_fixes

__all__ = ["fix", "settings_of"]

_FOR_S: Final = 600.0
"""After so long the gateway works by its own configuration again, whatever becomes of us."""
_OK: Final = 200


def fix(
    arguments: DoctorArguments, diagnosis: Diagnosis, admin_url: str | None, url: str | None
) -> None:
    """Tell what would be set, ask, and set it for ten minutes. What is told goes to stderr.

    Raises:
        EngineError: the gateway refuses, or there is no gateway.
    """
    console = Console(stderr=True)
    found = hot_fixes(diagnosis)
    if not found:
        console.print("Nothing of this can be changed while it runs: see what to do above.")
        return
    if admin_url is None:
        raise EngineError("--fix", "there is no Mileage gateway to change: give its --admin-url")
    settings = settings_of(found)
    for cause, each in found.items():
        console.print(Text.assemble((f"{cause}: ", "bold"), each.why))
    for key, value in settings.items():
        console.print(Text(f"  {key} = {_toml(value)}"))
    question = f"Try this for {_FOR_S / 60:g} minutes?"
    if not arguments.yes and not typer.confirm(question, default=False, err=True):
        console.print("Nothing was changed.")
        return
    body = msgspec.json.encode({"set": settings, "for_s": _FOR_S})
    answer = call_admin(admin_url, "/api/v1/config/trial", arguments.admin_token_file, body=body)
    if answer.status != _OK:
        raise EngineError(admin_url, admin_error(answer).message)
    sets = " ".join(
        f"--set-b {key}={_toml(value).strip(chr(34))}" for key, value in settings.items()
    )
    console.print(
        f"In force until {_FOR_S / 60:g} minutes from now. To keep it, write it to mileage.toml."
    )
    typer.echo(f"Proof: mileage bench ab {url or 'URL'} --rate RATE {sets}", err=True)


def settings_of(found: Mapping[str, HotFix]) -> dict[str, Any]:
    """All settings together, by dotted key."""
    return {key: value for each in found.values() for key, value in each.settings.items()}


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
