"""What Python prints of objects (`name=value, other=Class(...)`), read back as plain values."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

__all__ = ["read_fields", "read_value"]

DEPTH_MAX: Final = 24
TEXT_MAX: Final = 200_000
_FIELD: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=(?!=)")
_CALL: Final = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_.]*\(")
_BARE: Final = re.compile(r"[^,()\[\]{}<>'\"\n]*")
_WORDS: Final[dict[str, Any]] = {
    "None": None,
    "True": True,
    "False": False,
    "null": None,
    "true": True,
    "false": False,
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_ENDS: Final = ")]}"


def read_fields(text: str) -> dict[str, Any]:
    """`name=value` pairs, separated by commas, up to what is none: a bracket that closes, the end.

    Values are None, flags, numbers, texts, lists and dicts; an object is a dict of its fields, what
    is in angle brackets (a member of an enum) and any other bare word is a text. Never raises: what
    is broken ends the reading, and what was read before it counts.
    """
    return _Reader(text[:TEXT_MAX]).fields(0)


def read_value(text: str) -> Any:
    """The value that the text begins with; None where it begins with none."""
    return _Reader(text[:TEXT_MAX]).value(0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def fields(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (match := _FIELD.match(self._text, self._at)) is not None:
            self._at = match.end()
            found[match[1]] = self.value(depth)
            if not self._skip(","):
                break
        return found

    def value(self, depth: int) -> Any:
        self._space()
        char = self._text[self._at : self._at + 1]
        if depth > DEPTH_MAX or not char:
            self._at = len(self._text)
            return None
        if char in "'\"":
            return self._quoted(char)
        if char in "[(":
            return self._items("]" if char == "[" else ")", depth)
        if char == "{":
            return self._table(depth)
        if char == "<":
            return self._angled()
        if (call := _CALL.match(self._text, self._at)) is not None:
            self._at = call.end()
            found = self.fields(depth + 1)
            self._close(")")
            return found
        return self._bare()

    def _items(self, end: str, depth: int) -> list[Any]:
        self._at += 1
        found: list[Any] = []
        while not self._skip(end):
            before = self._at
            found.append(self.value(depth + 1))
            if not self._skip(","):
                self._close(end)
                break
            if self._at <= before:
                break
        return found

    def _table(self, depth: int) -> dict[str, Any]:
        self._at += 1
        found: dict[str, Any] = {}
        while not self._skip("}"):
            before = self._at
            key = self._key(depth)
            if not self._skip(":"):
                self._close("}")
                break
            found[str(key)] = self.value(depth + 1)
            if not self._skip(","):
                self._close("}")
                break
            if self._at <= before:
                break
        return found

    def _key(self, depth: int) -> Any:
        self._space()
        if self._text[self._at : self._at + 1] in ("'", '"', "(", "<"):
            return self.value(depth + 1)
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ":,}\n":
            self._at += 1
        return self._text[start : self._at].strip()

    def _quoted(self, quote: str) -> str:
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == quote:
                break
            if char == "\\" and self._at < len(self._text):
                char = _ESCAPES.get(self._text[self._at], self._text[self._at])
                self._at += 1
            parts.append(char)
        return "".join(parts)

    def _angled(self) -> str:
        end = self._text.find(">", self._at)
        end = len(self._text) if end < 0 else end + 1
        found = self._text[self._at : end]
        self._at = end
        return found

    def _bare(self) -> Any:
        match = _BARE.match(self._text, self._at)
        word = match[0].strip() if match is not None else ""
        if match is not None:
            self._at = match.end()
        if word in _WORDS:
            return _WORDS[word]
        return _number(word) if word else None

    def _space(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _skip(self, char: str) -> bool:
        """Step over the character, if it is next."""
        self._space()
        if self._text.startswith(char, self._at):
            self._at += 1
            return True
        return self._at >= len(self._text) and char in _ENDS

    def _close(self, end: str) -> None:
        """Go on after the bracket that closes, over whatever stands before it."""
        depth = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == end and depth == 0:
                return
            if char in "([{":
                depth += 1
            elif char in _ENDS:
                depth -= 1
                if depth < 0:
                    return


def _number(word: str) -> Any:
    """The number, else the word."""
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return word
    return number if isfinite(number) else word
