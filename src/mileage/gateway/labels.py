"""Labels: what a client says a request is for, in one spelling and of bounded variety."""

from __future__ import annotations

import re

from mileage.gateway.refusals import Refusal

__all__ = ["HEADER", "LabelBook"]

HEADER = "x-mileage-labels"
PAIRS_MAX = 8
"""Labels of one request."""
NAMES_MAX = 32
"""Different names of a day; a label whose name comes later is booked as `other=other`."""
VALUES_MAX = 256
"""Different values of one name and day; later ones are booked as `other`."""
SETS_MAX = 2048
"""Different sets of labels of a day; later ones are booked as `other=other`."""
_SPELLINGS_MAX = 4096
_OTHER = "other"
_DAY_NS = 86_400 * 1_000_000_000

_pair = re.compile(rb"([A-Za-z][A-Za-z0-9_.-]{0,31})=([A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,62})")
_EXPECTED = (
    f"up to {PAIRS_MAX} different NAME=VALUE, separated by commas; a name has up to 32 letters, "
    "digits, '_', '.' or '-', a letter first; a value up to 63, with ':', '/', '@' and '+' too, "
    "a letter or digit first"
)


class LabelBook:
    """The labels of one worker's requests.

    Each distinct set of labels is a row of every hour's roll-up, for ever, and clients choose the
    labels: one that puts an id into a label must not fill the ledger. So only so many names, values
    and sets are told apart on one day (UTC); what comes after is booked as `other`, and labels
    beside it stay what they are.
    """

    __slots__ = ("_day", "_known", "_sets", "_values")

    def __init__(self) -> None:
        self._day = -1
        self._forget()

    def _forget(self) -> None:
        self._known: dict[bytes, str | None] = {}
        """Headers as they came -> what they say."""
        self._values: dict[str, set[str]] = {}
        self._sets: set[str] = set()

    def read(self, header: bytes, at_utc_ns: int) -> str | None:
        """`name=value` pairs, sorted, joined by commas; None for an empty header.

        Refusal (400), which names the header, for one that is no such list.
        """
        day = at_utc_ns // _DAY_NS
        if day != self._day:
            self._day = day
            self._forget()
        known = self._known
        if header in known:
            return known[header]
        labels = self._bounded(_parse(header))
        if len(known) < _SPELLINGS_MAX:
            known[header] = labels
        return labels

    def _bounded(self, pairs: dict[str, str]) -> str | None:
        if not pairs:
            return None
        kept: dict[str, str] = {}
        for name, value in pairs.items():
            values = self._values.get(name)
            if values is None:
                if len(self._values) >= NAMES_MAX:
                    kept[_OTHER] = _OTHER
                    continue
                values = self._values[name] = set()
            if value not in values:
                if len(values) >= VALUES_MAX:
                    value = _OTHER
                else:
                    values.add(value)
            kept[name] = value
        labels = ",".join(f"{name}={value}" for name, value in sorted(kept.items()))
        if labels not in self._sets:
            if len(self._sets) >= SETS_MAX:
                return f"{_OTHER}={_OTHER}"
            self._sets.add(labels)
        return labels


def _parse(header: bytes) -> dict[str, str]:
    pairs: dict[str, str] = {}
    parts = [part.strip() for part in header.split(b",")]
    for part in filter(None, parts):
        found = _pair.fullmatch(part)
        name = found.group(1).decode() if found is not None else ""
        if found is None or name in pairs or len(pairs) == PAIRS_MAX:
            raise Refusal(400, f"the header '{HEADER}' must be {_EXPECTED}", param=HEADER)
        pairs[name] = found.group(2).decode()
    return pairs
