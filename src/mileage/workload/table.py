"""Table: rows of a CSV file, with every fault of its form told by file and line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mileage.core.errors import TraceError

__all__ = ["Table"]

_CELL_CHARACTERS_MAX: Final = 16 * 1024 * 1024


def _unforgiven(error: TraceError) -> None:
    raise error


class Table:
    """Iterates over (line, cells) of the rows below the header; empty lines are left out.

    Every row has as many cells as the header. Raises TraceError for text that is not UTF-8, and for
    quotes that do not fit: what comes after them cannot be told apart. For a row of another length
    it raises what `forgive` raises when it is given the error; else the row is left out.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        path: str,
        *,
        forgive: Callable[[TraceError], None] = _unforgiven,
    ) -> None:
        self._path, self._forgive = path, forgive
        # A row of ours may have a long list of blocks in one cell.
        csv.field_size_limit(_CELL_CHARACTERS_MAX)
        self._reader = csv.reader(self._decoded(lines), strict=True)
        self._columns = 0

    def header(self) -> list[str]:
        """The names of the columns, stripped; to be asked first."""
        for _, cells in self._rows():
            names = [name.strip() for name in cells]
            lower = [name.lower() for name in names]
            twice = sorted(name for name in names if name and lower.count(name.lower()) > 1)
            if twice:
                raise TraceError(self._path, 1, f"two columns are named {twice[0]!r}")
            self._columns = len(names)
            return names
        raise TraceError(self._path, 1, "is empty: expected a line with the names of the columns")

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        columns = self._columns
        for number, cells in self._rows():
            if len(cells) != columns:
                message = f"has {len(cells)} fields: expected {columns}, as the header"
                self._forgive(TraceError(self._path, number, message))
                continue
            yield number, cells

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        reader = self._reader
        began = reader.line_num + 1
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
                began = reader.line_num + 1
        except csv.Error as error:
            raise TraceError(self._path, *_told(str(error), began, reader.line_num)) from None

    def _decoded(self, lines: Iterable[bytes]) -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise TraceError(self._path, number, "is not UTF-8 text") from None
            # Not stripped: a name in quotes may hold ends of lines.
            yield text if text.endswith("\n") else f"{text}\n"


def _told(message: str, began: int, line: int) -> tuple[int, str]:
    """The line to name, and the fault in other words than those of the csv module."""
    if message == "unexpected end of data":
        return began, "has a quote that is not closed: expected another one"
    if message.startswith("field larger than"):
        return began, f"has a cell of over {_CELL_CHARACTERS_MAX:,} characters: is a quote missing?"
    return line, message
