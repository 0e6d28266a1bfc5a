"""A facts document: what is known of one deployment, checked name by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

import msgspec

from mileage.core.errors import ConfigError
from mileage.doctor.fact_kind import Kind
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.near_names import near_keys, nearest_of
from mileage.doctor.percentage import as_shares
from mileage.doctor.quantity import Quantity
from mileage.doctor.vocabulary import SECTIONS, key_of

__all__ = ["Facts", "FactsArm", "FactsComparison", "Value", "decode_facts"]

Value = Quantity | bool | str | tuple[str, ...] | None
"""Of a fact: a number as a `Quantity`, a flag, a word, words; None: known to be not set."""

LOG_LINES_MAX = 100_000
COMPARISONS_MAX = 1_000
ARMS_MAX = 1_000
SHOWN_MAX = 200
"""Characters of a value that an error shows."""

SIGNED = ("settings.", "growth", "hpa_metric", "gpu_temp", "max_tokens")
"""Pieces of paths of what may be below 0: slopes, temperatures, a metric of any kind, and settings
for which -1 is "as many as fit"."""


class FactsArm(msgspec.Struct, frozen=True):
    """One arm of a comparison: what differs from the rest of the document."""

    name: str
    current: bool
    values: Mapping[str, Value]


class FactsComparison(msgspec.Struct, frozen=True):
    """Arms of one comparison, in the order of the document."""

    arms: tuple[FactsArm, ...]
    restarted_between_arms: bool | None = None


class Facts(msgspec.Struct, frozen=True):
    """What is known of one deployment: values by key (`vocabulary.KEYS`), logs, comparisons."""

    values: Mapping[str, Value] = {}
    logs: tuple[str, ...] = ()
    comparisons: tuple[FactsComparison, ...] = ()


def decode_facts(document: object, *, place: str | None = None) -> Facts:
    """Check a facts document (JSON, as Python objects) and return what it holds.

    Raises:
        ConfigError: a name is not in the vocabulary or a value is not of its kind; the error
            names it by its path, such as `comparisons[0].arms[1].signals.itl_p99_s`.
    """
    return _Decoder(place).facts(document)


class _Decoder:
    def __init__(self, place: str | None) -> None:
        self._place = place

    def facts(self, document: object) -> Facts:
        table = self._table("facts", document)
        known = {*SECTIONS, "logs", "comparisons"}
        self._only(table, known, "")
        return Facts(
            values=self._sections(table, ""),
            logs=tuple(self._texts("logs", table.get("logs", []), LOG_LINES_MAX)),
            comparisons=tuple(
                self._comparison(f"comparisons[{index}]", item)
                for index, item in enumerate(
                    self._list("comparisons", table.get("comparisons", []), 0, COMPARISONS_MAX)
                )
            ),
        )

    def _comparison(self, path: str, item: object) -> FactsComparison:
        table = self._table(path, item)
        self._only(table, {"restarted_between_arms", "arms"}, f"{path}.")
        restarted = table.get("restarted_between_arms")
        if restarted is not None and not isinstance(restarted, bool):
            raise self._error(f"{path}.restarted_between_arms", restarted, "true or false")
        arms = self._list(f"{path}.arms", table.get("arms"), 2, ARMS_MAX)
        return FactsComparison(
            arms=tuple(self._arm(f"{path}.arms[{n}]", arm) for n, arm in enumerate(arms)),
            restarted_between_arms=restarted,
        )

    def _arm(self, path: str, item: object) -> FactsArm:
        table = self._table(path, item)
        self._only(table, {*SECTIONS, "arm", "current"}, f"{path}.")
        name = table.get("arm")
        if not isinstance(name, str):
            raise self._error(f"{path}.arm", name, "a text: the arm's name")
        current = table.get("current", False)
        if not isinstance(current, bool):
            raise self._error(f"{path}.current", current, "true or false")
        return FactsArm(name=name, current=current, values=self._sections(table, f"{path}."))

    def _sections(self, table: Mapping[str, Any], prefix: str) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for section, kinds in SECTIONS.items():
            if section not in table:
                continue
            names = self._table(f"{prefix}{section}", table[section])
            self._only(names, set(kinds), f"{prefix}{section}.")
            for name, value in names.items():
                path = f"{prefix}{section}.{name}"
                key = key_of(section, name)
                values[key] = self._value(path, key, kinds[name], value, section == "settings")
        return values

    def _value(self, path: str, key: str, kind: Kind, value: object, may_be_null: bool) -> Value:
        if value is None and may_be_null:
            if kind.form == "number":
                return Quantity(key, kind.unit, unset=True)
            return None
        match kind.form:
            case "number" | "signal" | "numbers":
                return self._quantity(path, key, kind, value)
            case "flag" if isinstance(value, bool):
                return value
            case "text" if isinstance(value, str):
                return value
            case "choice" if isinstance(value, str) and value in kind.choices:
                return value
            case "texts":
                return tuple(self._texts(path, value, 1_000))
        raise self._error(path, value, kind.described())

    def _quantity(self, path: str, key: str, kind: Kind, value: object) -> Quantity:
        stated = self._stated(path, key, kind, value)
        parts = as_shares(key, stated.parts)
        if parts is None:
            raise self._error(path, value, "a share of 0 to 1")
        return stated if parts is stated.parts else msgspec.structs.replace(stated, parts=parts)

    def _stated(self, path: str, key: str, kind: Kind, value: object) -> Quantity:
        if isinstance(value, Mapping) and "series" in value and kind.form == "signal":
            points = [
                self._table(f"{path}.series[{n}]", point)
                for n, point in enumerate(
                    self._list(f"{path}.series", value["series"], 2, 1_000_000)
                )
            ]
            parts = tuple(
                self._interval(f"{path}.series[{n}].value", kind, point.get("value"))
                for n, point in enumerate(points)
            )
            times = tuple(self._time(f"{path}.series[{n}].t_s", p) for n, p in enumerate(points))
            return Quantity(key, kind.unit, "series", parts, times)
        if isinstance(value, list) and kind.form in ("signal", "numbers"):
            least = 2 if kind.form == "signal" else 1
            parts = tuple(
                self._interval(f"{path}[{n}]", kind, part)
                for n, part in enumerate(self._list(path, value, least, 100_000))
            )
            return Quantity(key, kind.unit, "units", parts)
        if kind.form == "numbers":
            raise self._error(path, value, kind.described())
        return Quantity(key, kind.unit, "one", (self._interval(path, kind, value),))

    def _interval(self, path: str, kind: Kind, value: object) -> Interval:
        if _is_number(value):
            number = float(cast("float", value))
            if number < 0 and not any(name in path for name in SIGNED):
                raise self._error(path, value, f"{kind.described()}, not below 0")
            return exactly(number)
        if isinstance(value, Mapping) and value and set(value) <= {"min", "max"}:
            for name, end in value.items():
                if not _is_number(end):
                    raise self._error(f"{path}.{name}", end, "a number")
            # What is measured is not negative, but for a slope: "at most 0.5" is "0 to 0.5".
            least = float("-inf") if "growth" in path else min(0.0, float(value.get("max", 0.0)))
            bound = Interval(float(value.get("min", least)), float(value.get("max", float("inf"))))
            if bound.low > bound.high:
                raise self._error(path, value, "min at most max")
            return bound
        raise self._error(path, value, kind.described())

    def _time(self, path: str, point: Mapping[str, Any]) -> float | None:
        self._only(point, {"t_s", "value"}, path.removesuffix("t_s"))
        time_s = point.get("t_s")
        if time_s is not None and not _is_number(time_s):
            raise self._error(path, time_s, "a number (s)")
        return time_s

    def _texts(self, path: str, value: object, most: int) -> Sequence[str]:
        items = self._list(path, value, 0, most)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise self._error(f"{path}[{index}]", item, "a text")
        return cast("list[str]", items)

    def _list(self, path: str, value: object, least: int, most: int) -> list[object]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise self._error(path, value, f"a list of {least} to {most} items")
        return value

    def _table(self, path: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self._error(path, value, "an object")
        return value

    def _only(self, table: Mapping[str, Any], known: set[str], prefix: str) -> None:
        for name in table:
            if name not in known:
                raise self._error(f"{prefix}{name}", table[name], _expected(name, known, prefix))

    def _error(self, path: str, value: object, expected: str) -> ConfigError:
        plain = isinstance(value, (str, int, float, bool)) or value is None
        shown = value if plain else type(value)
        if isinstance(value, str):
            shown = value[:SHOWN_MAX]
        elif isinstance(value, int) and abs(value) >= 10**SHOWN_MAX:
            shown = "a number of very many digits"  # its text would be refused by Python itself
        return ConfigError(path, shown, expected, place=self._place)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 1e300 and isfinite(value)


def _expected(name: str, known: set[str], prefix: str) -> str:
    """What may stand in the place of an unknown name, in words."""
    section = prefix.rstrip(".").rpartition(".")[2]
    if section in SECTIONS:
        near = near_keys(name, section)
    elif SECTIONS.keys() <= known:  # it stands where a section does
        close = nearest_of(name, known)
        near = (close,) if close is not None else near_keys(name)
    else:
        near = tuple(filter(None, (nearest_of(name, known),)))
    hint = f" (is it {' or '.join(near)}?)" if near else ""
    return f"a name of the vocabulary{hint or ', docs/reference/facts.md'}"
