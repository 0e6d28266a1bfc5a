"""`app`: the `mileage` command with all of its subcommands, for what looks at all of them."""

from __future__ import annotations

from typing import Final

from mileage.cli.commands import command_line

__all__ = ["app"]

app: Final = command_line()
