"""What a colleague may see of logs and settings: no keys, passwords, prompts, addresses or names.

Errs on the side of taking out: a diagnosis needs numbers and words, not who runs what where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mileage.doctor.redact_patterns import COUNTS, HIDDEN, PROMPTS, SECRETS, is_secret_name

__all__ = ["Redactor"]

_PEOPLE = re.compile(r"(/(?:home|Users)/)([\w.-]+)")
_ADDRESS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])")
_VERSION = re.compile(r"(?i)(?:version|release|\bver|\bv)\.?['\"]?\s*[:=]?\s*['\"]?$")
"""What stands before four numbers that are a version, not an address."""
_VERSION_KEY = re.compile(r"(?i)(?:^|[._ -]|[a-z])version$")
_GROUP = r"[0-9a-fA-F]{1,4}"
_IPV6 = re.compile(
    rf"(?<![\w:])(?:(?:{_GROUP}:){{4,7}}{_GROUP}|(?:{_GROUP}:)*{_GROUP}::{_GROUP}(?::{_GROUP})*)"
    r"(?![\w:])"
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b")
_HOST = re.compile(r"(://(?:[^\s/@]*@)?)(?!host-\d)([A-Za-z][\w-]*(?:\.[\w-]+)*)(?=[:/?\s'\"]|$)")
_DOMAIN = re.compile(
    r"(?<![\w./@-])((?:[\w-]+\.)+(?:internal|local|corp|lan|intranet|svc|com|net|org|io|cloud))"
    r"(?![\w.(/-])"
)
_LOOPBACK = frozenset({"127.0.0.1", "0.0.0.0", "localhost"})  # noqa: S104 -- a name, not bound


class Redactor:
    """Takes secrets out, and gives each address and person one name that stays the same, so that
    lines about one host can still be told from those about another."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def text(self, line: str) -> str:
        """The line without secrets, prompts, addresses and people."""
        kept: list[str] = []

        def keep(match: re.Match[str]) -> str:
            kept.append(match.group())
            return f"\x00{len(kept) - 1}\x00"

        line = PROMPTS.sub(rf"\1{HIDDEN}", line.replace("\x00", ""))
        line = COUNTS.sub(keep, line)
        for pattern, left in SECRETS:
            line = pattern.sub(left, line)
        line = _MAIL.sub(lambda m: self._name("mail", m.group()), line)
        line = _PEOPLE.sub(lambda m: m.group(1) + self._name("user", m.group(2)), line)
        line = _ADDRESS.sub(self._address, line)
        line = _IPV6.sub(lambda m: self._host(m.group()), line)
        line = _HOST.sub(lambda m: m.group(1) + self._host(m.group(2)), line)
        line = _DOMAIN.sub(lambda m: self._host(m.group(1)), line)
        return re.sub("\x00(\\d+)\x00", lambda m: kept[int(m.group(1))], line)

    def document(self, value: Any) -> Any:
        """A JSON document with every text in it redacted; what is under a secret's name goes."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            named = value.get("name")
            secret = isinstance(named, str) and is_secret_name(named)
            return {
                key: HIDDEN
                if _hides(key, inner) or (secret and key == "value")
                else (inner if _is_version(key, inner) else self.document(inner))
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [
                HIDDEN if _follows_option(value, place) else self.document(inner)
                for place, inner in enumerate(value)
            ]
        return value

    def _address(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 20) : match.start()]
        return match.group() if _VERSION.search(before) else self._host(match.group(1))

    def _host(self, name: str) -> str:
        return name if name in _LOOPBACK else self._name("host", name)

    def _name(self, kind: str, value: str) -> str:
        known = self._names.get(f"{kind} {value}")
        if known is None:
            count = sum(name.startswith(f"{kind} ") for name in self._names)
            known = self._names[f"{kind} {value}"] = f"{kind}-{count + 1}"
        return known


def _hides(key: object, value: object) -> bool:
    """Is the value a secret by its key? A number under a token's name is a count or a place."""
    if not isinstance(key, str) or value is None or isinstance(value, bool):
        return False
    if isinstance(value, int | float) and "token" in key.lower():
        return False
    return is_secret_name(key)


def _is_version(key: object, value: object) -> bool:
    """Is it a version of four numbers under such a name?"""
    named = isinstance(key, str) and _VERSION_KEY.search(key) is not None
    return named and isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def _follows_option(items: Sequence[Any], place: int) -> bool:
    """Is it the value of an option such as `--api-key`, in a list of arguments?"""
    before, value = items[place - 1] if place else None, items[place]
    option = isinstance(before, str) and before.startswith("-") and "=" not in before
    return option and isinstance(value, str) and is_secret_name(str(before))
