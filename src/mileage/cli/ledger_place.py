"""Where the ledger's database is: a directory's own, or the one that gateways share."""

from __future__ import annotations

from pathlib import Path

from mileage.cli.config import ledger_directory
from mileage.core.errors import ConfigError
from mileage.storage.config import LedgerConfig
from mileage.storage.sqlite import DATABASE_NAME

__all__ = ["ledger_place"]


def ledger_place(
    config: LedgerConfig, given: Path | None = None, *, expected: str | None = None
) -> Path | str:
    """For whoever reads: the directory that was given, else the shared database's address, else
    the configured directory. ConfigError where a directory has no database, with what else was
    `expected`.
    """
    if given is None and config.database is not None:
        return config.database
    directory = given if given is not None else ledger_directory(config)
    if not (directory / DATABASE_NAME).exists():
        wanted = expected or f"a directory with a {DATABASE_NAME}"
        raise ConfigError("--ledger", str(directory), wanted)
    return directory
