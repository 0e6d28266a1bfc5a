"""What a rule sees of the facts: every name answers, and says "not known" where it is absent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mileage.doctor.arms import Arm, Comparison
from mileage.doctor.check import Check
from mileage.doctor.facts import Facts, Value
from mileage.doctor.log_text import LogText
from mileage.doctor.quantity import Quantity
from mileage.doctor.vocabulary import KEYS, SECTIONS

__all__ = ["Evidence"]

LOG_SHOWN_MAX = 160


class Evidence:
    """The deployment as it runs now: the document, with the arm that is marked as current on top.

    Keys are those of `mileage.doctor.vocabulary.KEYS`: names of settings, workload and signals as
    they are, others with their section (`model.params_b`, `hardware.count`, `topology.proxies`).
    A key that is not in the vocabulary raises KeyError: it is a bug of the rule.
    """

    def __init__(self, facts: Facts) -> None:
        self._values: dict[str, Value] = dict(facts.values)
        for comparison in facts.comparisons:
            for arm in comparison.arms:
                if arm.current:
                    self._values.update(arm.values)
        self._log_text = LogText(facts.logs)
        self.comparisons: tuple[Comparison, ...] = tuple(
            Comparison(
                arms=tuple(
                    Arm(arm.name, arm.current, dict(facts.values) | dict(arm.values), arm.values)
                    for arm in comparison.arms
                ),
                restarted_between_arms=comparison.restarted_between_arms,
            )
            for comparison in facts.comparisons
        )

    @property
    def values(self) -> Mapping[str, Value]:
        """Every known value by key."""
        return self._values

    def number(self, key: str) -> Quantity:
        """A numeric fact; one that is absent answers every check with "not known"."""
        section, name = KEYS[key]
        value = self._values.get(key)
        if isinstance(value, Quantity):
            return value
        return Quantity(key, SECTIONS[section][name].unit)

    def text(self, key: str) -> str | None:
        """A word or text in lower case; None where it is absent or not set."""
        assert key in KEYS, key
        value = self._values.get(key)
        return value.lower() if isinstance(value, str) else None

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of texts in lower case (`model.architecture`); None where it is absent."""
        assert key in KEYS, key
        value = self._values.get(key)
        return tuple(word.lower() for word in value) if isinstance(value, tuple) else None

    def known(self, key: str) -> bool:
        """Is there a value? Not for a setting that is known to be not set."""
        assert key in KEYS, key
        value = self._values.get(key)
        return value.known if isinstance(value, Quantity) else value is not None

    def is_true(self, key: str) -> Check:
        """Is the flag true?"""
        return self._flag(key, expected=True)

    def is_false(self, key: str) -> Check:
        """Is the flag false?"""
        return self._flag(key, expected=False)

    def is_one_of(self, key: str, *words: str) -> Check:
        """Is the text one of `words` (compared in lower case)? Not set: no."""
        return self._text_check(key, " or ".join(words), lambda text: text in words)

    def contains(self, key: str, *pieces: str) -> Check:
        """Does the text hold one of `pieces` (compared in lower case)? Not set: no."""
        limit = f"contains {' or '.join(pieces)}"
        return self._text_check(key, limit, lambda text: any(piece in text for piece in pieces))

    def includes(self, key: str, *words: str) -> Check:
        """Does the list of texts include one of `words`, such as `model.architecture` "mla"?"""
        listed = self.words(key)
        truth = None if listed is None else any(word in listed for word in words)
        shown = None if listed is None else list(listed)
        return Check(key, shown, f"includes {' or '.join(words)}", truth)

    def is_unset(self, key: str) -> Check:
        """Is the setting known to be not set, so that its default applies?"""
        assert key in KEYS, key
        if key not in self._values:
            return Check(key, None, "not set", None)
        value = self._values[key]
        unset = value.unset if isinstance(value, Quantity) else value is None
        return Check(key, None if unset else self._shown(key), "not set", unset)

    def logged(self, pattern: str) -> Check:
        """Does a log line match the regular expression (any case)?

        True with the line as its value; otherwise not known: a log that does not say it proves
        nothing.
        """
        line = self._log_text.first_unlike(re.compile(pattern, re.IGNORECASE))
        if line is not None:
            return Check("logs", line[:LOG_SHOWN_MAX], "says so", True)
        return Check("logs", None, "says so", None)

    def log_matches(
        self, pattern: re.Pattern[str], *, last_first: bool = False
    ) -> Iterator[re.Match[str]]:
        """The match of each log line that has one, in their order or from the last one on."""
        return self._log_text.matches(pattern, last_first=last_first)

    def beside(self, values: Mapping[str, Value]) -> Evidence:
        """The same logs with these values, and no comparisons."""
        other = Evidence(Facts(values=values))
        other._log_text = self._log_text
        return other

    @property
    def logs(self) -> Sequence[str]:
        """The raw lines."""
        return self._log_text.lines

    @property
    def gpu_count(self) -> Quantity:
        """GPUs of the deployment: `hardware.count`, else the product of the parallel sizes."""
        count = self.number("hardware.count")
        if count.known:
            return count
        return self.number("tensor_parallel_size")

    def _flag(self, key: str, *, expected: bool) -> Check:
        assert key in KEYS, key
        value = self._values.get(key)
        truth = value is expected if isinstance(value, bool) else None
        return Check(key, value if isinstance(value, bool) else None, str(expected).lower(), truth)

    def _text_check(self, key: str, limit: str, decide: Any) -> Check:
        text = self.text(key)
        if text is None:
            unset = key in self._values
            return Check(key, None, limit, False if unset else None)
        return Check(key, text, limit, bool(decide(text)))

    def _shown(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, Quantity):
            return value.plain()
        return list(value) if isinstance(value, tuple) else value
