"""The file of a command's report, of option `key`: whether it can be written, and writing it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError

__all__ = ["check_report", "write_page"]


def check_report(path: Path | None, key: str = "--report") -> None:
    """Raises ConfigError where a report could not be written, before anything is done for it."""
    if path is None:
        return
    if find_spec("plotly") is None:
        raise ConfigError(key, str(path), "plotly: pip install 'mileage[sim]'")
    check_place(path, key=key)


def write_page(path: Path, page: str, key: str = "--report") -> None:
    """Write the page; the file is whole, or as it was before. Raises ConfigError, and FileError
    where writing fails."""
    with whole_file(path, key=key) as file:
        file.write(page.encode())
