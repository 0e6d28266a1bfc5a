"""csv_cell(): a text as a cell of a CSV file that spreadsheets and terminals take as a text."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["csv_cell"]

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_UNSEEN: Final = ("Cc", "Cf")


def csv_cell(text: str) -> str:
    """What a spreadsheet would run as a formula gets an apostrophe before it; characters that are
    not seen (control characters, marks of writing direction) are written as their escapes."""
    if any(unicodedata.category(char) in _UNSEEN for char in text):
        text = "".join(
            char.encode("unicode_escape").decode()
            if unicodedata.category(char) in _UNSEEN
            else char
            for char in text
        )
    return f"'{text}" if text.startswith(_FORMULA) else text
