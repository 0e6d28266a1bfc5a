"""Expressions: how one figure is computed from an engine's own series, per scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

from mileage.measure.metrics_page import RANK_LABELS, Page, Scheduler, Values, fold, possible

__all__ = ["Binary", "Expression", "Label", "Percent", "Series", "finder"]


class Series(msgspec.Struct, frozen=True):
    """A series by name; with `label`, only where that label has `value`.

    `help_word`: only if the HELP text contains it (vLLM changed a unit and kept the name).
    """

    name: str
    label: str = ""
    value: str = ""
    help_word: str = ""

    def __str__(self) -> str:
        return f'{self.name}{{{self.label}="{self.value}"}}' if self.label else self.name

    def names(self) -> Iterable[str]:
        """Names of all series that it reads."""
        return (self.name,)

    def read(self, page: Page) -> Values:
        """Its value per scheduler; empty where there is none. The label that it picks is spent."""
        if self.help_word and self.help_word not in page.help(self.name):
            return {}
        return fold(
            ({k: v for k, v in s.labels.items() if k != self.label}, possible(s.value))
            for s in page.samples(self.name)
            if not self.label or s.labels.get(self.label) == self.value
        )


class Label(msgspec.Struct, frozen=True):
    """A number that is the value of a label, on a series ending in _info."""

    name: str
    label: str

    def __str__(self) -> str:
        return f"{self.name}[{self.label}]"

    def names(self) -> Iterable[str]:
        """Names of all series that it reads."""
        return (self.name,)

    def read(self, page: Page) -> Values:
        """Its value per scheduler: of an info series' labels only the rank tells them apart."""
        return fold(
            ({k: v for k, v in s.labels.items() if k in RANK_LABELS}, _number(s.labels[self.label]))
            for s in page.samples(self.name)
            if self.label in s.labels
        )


class Percent(msgspec.Struct, frozen=True):
    """A percentage as a ratio; with `beside`, only on a page that has that series too."""

    of: Series
    beside: str = ""

    def __str__(self) -> str:
        return f"{self.of} ÷ 100"

    def names(self) -> Iterable[str]:
        """Names of all series that it reads."""
        return (*self.of.names(), self.beside) if self.beside else self.of.names()

    def read(self, page: Page) -> Values:
        """Its value per scheduler; empty where there is none."""
        if self.beside and not page.samples(self.beside):
            return {}
        values = self.of.read(page).items()
        return {who: None if value is None else value / 100 for who, value in values}


class Binary(msgspec.Struct, frozen=True):
    """Two expressions combined, per scheduler of the left one; anything over zero is None."""

    left: Series | Label
    operator: Literal["×", "+", "÷"]
    right: Series | Label

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    def names(self) -> Iterable[str]:
        """Names of all series that it reads."""
        return (*self.left.names(), *self.right.names())

    def read(self, page: Page) -> Values:
        """Its value per scheduler; empty where either side is missing."""
        right = self.right.read(page)
        if not right:
            return {}
        find = finder(right)
        return {who: self._combine(a, find(who)) for who, a in self.left.read(page).items()}

    def _combine(self, a: float | None, b: float | None) -> float | None:
        if a is None or b is None:
            return None
        if self.operator == "+":
            return possible(a + b)
        if self.operator == "×":
            return possible(a * b)
        return possible(a / b) if b > 0 else None


Expression: TypeAlias = Series | Label | Percent | Binary


def finder(values: Values) -> Callable[[Scheduler], float | None]:
    """A look-up of a scheduler among values whose series may carry other labels than its own.

    It is found by all it is known by, else by its rank alone where that is unambiguous.
    """
    by_rank: Values = {}
    for (rank, _), value in values.items():
        alone = Scheduler(rank, ())
        by_rank[alone] = None if alone in by_rank else value

    def find(who: Scheduler) -> float | None:
        return values[who] if who in values else by_rank.get(Scheduler(who.rank, ()))

    return find


def _number(text: str) -> float | None:
    try:
        return possible(float(text))
    except ValueError:
        return None
