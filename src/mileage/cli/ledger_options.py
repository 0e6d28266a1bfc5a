"""Options that commands on a ledger share: which configuration, which ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["ConfigFile", "LedgerDirectory"]

ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="Configuration file, mileage.toml.")
]
LedgerDirectory: TypeAlias = Annotated[
    Path | None, typer.Option(help="Ledger directory. [default: of the configuration]")
]
