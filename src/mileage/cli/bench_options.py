"""Options that several commands of `mileage bench` have in common, as annotations of fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["AdminTokenEnv", "AdminTokenFile", "AsJson", "Report"]

AdminTokenEnv: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Environment variable with the admin token. [default: the file in the state directory]"
    ),
]
AdminTokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="File with the admin token in its first line."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Report: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Write an HTML report to this file."),
]
