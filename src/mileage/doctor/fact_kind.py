"""What kind of value a fact has: a number with its unit, a flag, a word, a list."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Form", "Kind", "flag", "number", "numbers", "one_of", "signal", "text", "texts"]

Form = Literal["number", "signal", "numbers", "flag", "text", "texts", "choice"]


class Kind(msgspec.Struct, frozen=True):
    """The form of a fact's value, its unit where it is a number, its words where they are few.

    A `number` is one value or a bound; a `signal` may also be a list (one value for each unit) or
    a series over time.
    """

    form: Form
    unit: str = ""
    choices: tuple[str, ...] = ()
    meaning: str = ""
    """What the name stands for, in words that fit before its value."""

    def described(self) -> str:
        """What is expected, in words, for an error message."""
        if self.form == "choice":
            return f"one of {', '.join(self.choices)}"
        if self.form == "number":
            return f"a number{self._in_unit()} or a bound such as {{'min': 1}}"
        if self.form == "signal":
            return f"a number{self._in_unit()}, a bound, a list of them or {{'series': [...]}}"
        return {
            "flag": "true or false",
            "text": "a text",
            "texts": "a list of texts",
            "numbers": f"a list of numbers{self._in_unit()}",
        }[self.form]

    def _in_unit(self) -> str:
        return f" ({self.unit})" if self.unit else ""


def number(unit: str, meaning: str) -> Kind:
    """One value, in `unit`."""
    return Kind("number", unit, meaning=meaning)


def signal(unit: str, meaning: str) -> Kind:
    """A value, one for each unit (GPU, replica, process), or a series over time."""
    return Kind("signal", unit, meaning=meaning)


def numbers(unit: str, meaning: str) -> Kind:
    """A list of values, in `unit`."""
    return Kind("numbers", unit, meaning=meaning)


def flag(meaning: str) -> Kind:
    """True or false."""
    return Kind("flag", meaning=meaning)


def text(meaning: str) -> Kind:
    """Free text."""
    return Kind("text", meaning=meaning)


def texts(meaning: str) -> Kind:
    """A list of texts."""
    return Kind("texts", meaning=meaning)


def one_of(*choices: str, meaning: str) -> Kind:
    """One of a few words."""
    return Kind("choice", choices=choices, meaning=meaning)
