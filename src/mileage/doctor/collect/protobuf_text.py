"""Protobuf's text format, as in Triton's config.pbtxt, read without a schema."""

from __future__ import annotations

import re
from typing import Any, Final

from mileage.core.errors import ConfigError

__all__ = ["Message", "parse_message"]

Message = dict[str, list[Any]]
"""Field name -> its values in order: texts, numbers, flags, messages."""

TEXT_MAX: Final = 4 * 1024 * 1024
DEPTH_MAX: Final = 50
_TOKEN: Final = re.compile(
    r"(?P<space>(?:\s|#[^\n]*)+)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?(?![\w.]))"
    r"|(?P<word>-?[A-Za-z_][\w.]*|\$\{\w+\}|\[[\w./]+\](?=\s*[:{]))"
    r"|(?P<mark>[{}<>\[\]:,;])"
)
_ESCAPE: Final = re.compile(r"\\([abfnrtv\\'\"?]|[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FLAGS: Final = {"true": True, "false": False, "True": True, "False": False, "t": True, "f": False}
_CLOSERS: Final = {"{": "}", "<": ">"}


def parse_message(text: str, *, place: str) -> Message:
    """The fields of a message. `place` is where it was written, for the error.

    A template's placeholder that was not filled in (`${name}`) is a text like any other.

    Raises:
        ConfigError: the text is no such message; names the line.
    """
    if len(text) > TEXT_MAX:
        raise ConfigError("config", f"{len(text)} characters", f"{TEXT_MAX} at most", place=place)
    return _Parser(text, place).fields(end="", depth=0)


class _Parser:
    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self._at = 0
        self._kind, self._piece, self._start = "end", "", 0
        self._next()

    def fields(self, *, end: str, depth: int) -> Message:
        message: Message = {}
        while self._piece != end or (not end and self._kind != "end"):
            if self._kind != "word":
                raise self._error("a field's name")
            name = self._take()
            colon = self._skip(":")
            values = message.setdefault(name, [])
            if self._piece == "[" and self._kind == "mark":
                self._next()
                while not self._skip("]"):
                    values.append(self._value(depth))
                    self._skip(",")
            elif colon or self._piece in _CLOSERS:
                values.append(self._value(depth))
            else:
                raise self._error("':' or '{' after a field's name")
            if not self._skip(","):
                self._skip(";")
        return message

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self._error(f"at most {DEPTH_MAX} messages within each other")
        if self._kind == "mark" and self._piece in _CLOSERS:
            closer = _CLOSERS[self._take()]
            message = self.fields(end=closer, depth=depth + 1)
            self._next()
            return message
        if self._kind == "text":
            parts = []
            while self._kind == "text":  # texts one after another are one
                parts.append(_unescaped(self._take()[1:-1]))
            return "".join(parts)
        if self._kind == "number":
            return _number(self._take())
        if self._kind == "word":
            word = self._take()
            return _FLAGS.get(word, word)
        raise self._error("a value")

    def _take(self) -> str:
        token = self._piece
        self._next()
        return token

    def _skip(self, mark: str) -> bool:
        if self._kind == "mark" and self._piece == mark:
            self._next()
            return True
        return False

    def _next(self) -> None:
        while True:
            self._start = self._at
            if self._at >= len(self._text):
                self._kind, self._piece = "end", ""
                return
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                self._kind, self._piece = "mark", self._text[self._at]
                raise self._error("protobuf's text format")
            self._at = match.end()
            if match.lastgroup != "space":
                self._kind, self._piece = match.lastgroup or "", match[0]
                return

    def _error(self, expected: str) -> ConfigError:
        line = self._text.count("\n", 0, self._start) + 1
        shown = self._piece[:50] if self._kind != "end" else "the end"
        return ConfigError("config", shown, expected, place=f"{self._place}:{line}")


def _number(text: str) -> int | float:
    plain = text.rstrip("fF") if "x" not in text.lower() else text
    try:
        return int(plain, 0)
    except ValueError:
        pass
    try:
        return int(plain)
    except ValueError:
        return float(plain)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)
