"""Numbers as profilers print them: separators of any locale, units of time and size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

__all__ = ["BYTES_BY_UNIT", "NS_BY_UNIT", "Numerals", "unit_of"]

NS_BY_UNIT: Final[Mapping[str, float]] = {
    **dict.fromkeys(("ns", "nsec", "nsecond", "nanosecond"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "usec", "usecond", "microsecond"), 1e3),
    **dict.fromkeys(("ms", "msec", "msecond", "millisecond"), 1e6),
    **dict.fromkeys(("s", "sec", "second"), 1e9),
}
BYTES_BY_UNIT: Final[Mapping[str, float]] = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **dict.fromkeys(("kb", "kbyte"), 1e3),
    **dict.fromkeys(("mb", "mbyte"), 1e6),
    **dict.fromkeys(("gb", "gbyte"), 1e9),
    **dict.fromkeys(("kib", "kibyte"), 1024.0),
    **dict.fromkeys(("mib", "mibyte"), 1024.0**2),
    **dict.fromkeys(("gib", "gibyte"), 1024.0**3),
}
_SPACES: Final = str.maketrans("", "", " \t\u00a0\u202f\u2009'\u2019")
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9.,]*(?:[eE][+-]?[0-9]+)?|[+-]?\.[0-9]+")
_GROUPED: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")
_LENGTH_MAX: Final = 64


class Numerals:
    """Reads the numbers of one export, whose locale it learns from the cells that show it.

    `1,234.5` and `0.5` show a decimal point, `1.234,5` and `0,5` a decimal comma. Where no cell
    shows it, a point is decimal and a comma groups digits, as in an English locale; a lone comma
    that cannot group is decimal.
    """

    def __init__(self, cells: Iterable[str] = ()) -> None:
        self._comma = False
        for cell in cells:
            shown = _decimal_mark(_bare(cell))
            if shown is not None:
                self._comma = shown == ","
                break

    def number(self, text: str) -> float | None:
        """The number; None where the text is none."""
        bare = _bare(text)
        if not bare or _NUMBER.fullmatch(bare) is None:
            return None
        mark = _decimal_mark(bare) or ("," if self._comma else ".")
        bare = bare.replace("." if mark == "," else ",", "").replace(",", ".")
        try:
            value = float(bare)
        except ValueError:
            return None
        return value if isfinite(value) else None


def unit_of(header: str) -> tuple[str, str]:
    """Name and unit of a column, in lower case: `Total Time (ns)` -> `total time`, `ns`."""
    name, _, rest = header.strip().strip('"').replace("[", "(").partition("(")
    return name.strip().lower(), rest.rstrip(" )]").lower()


def _bare(text: str) -> str:
    return text.translate(_SPACES).rstrip("%") if len(text) <= _LENGTH_MAX else ""


def _decimal_mark(bare: str) -> str | None:
    """The mark that is decimal for certain; None where both readings are possible, or none is."""
    points, commas = bare.count("."), bare.count(",")
    if _NUMBER.fullmatch(bare) is None or not points + commas:
        return None
    if points and commas:
        return "," if bare.rindex(",") > bare.rindex(".") else "."
    mark = "." if points else ","
    if points + commas > 1:
        return "," if points else "."
    return None if _GROUPED.fullmatch(bare) else mark
