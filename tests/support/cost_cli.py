"""Runs `mileage cost` in the test's process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from mileage.ledger.usage_row import CapacityRow, UsageRow
from tests.support.billed_ledger import write_rows

__all__ = ["CostSite"]


class CostSite:
    """A ledger and a configuration in a directory, and the command on them."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.ledger = directory, directory / "ledger"
        self._config = directory / "mileage.toml"
        self._config.write_text("")

    def rows(
        self,
        usage: Sequence[UsageRow],
        capacity: Sequence[CapacityRow],
        settled_until_utc_s: int | None = None,
    ) -> None:
        """Write the ledger."""
        write_rows(self.ledger, usage, capacity, settled_until_utc_s)

    def config(self, text: str) -> None:
        """Write the configuration."""
        self._config.write_text(text)

    def run(self, *options: str, code: int = 0) -> Result:
        """The result of `mileage cost OPTIONS`, which ends with that code."""
        where = ("--config", str(self._config), "--ledger", str(self.ledger))
        result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, ["cost", *options, *where])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def document(self, *options: str, code: int = 0) -> dict[str, Any]:
        """What it prints with --json; amounts are decimals."""
        printed = self.run(*options, "--json", code=code).stdout
        document: dict[str, Any] = json.loads(printed, parse_float=Decimal)
        return document

    def refused(self, *options: str) -> ConfigError:
        """What it says of options or a configuration that are wrong."""
        with pytest.raises(ConfigError) as caught:
            self.run(*options)
        return caught.value
