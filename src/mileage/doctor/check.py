"""One question put to the facts, with the answer yes, no or not known."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Check", "both", "either"]


class Check(msgspec.Struct, frozen=True):
    """`signal` has `value`; does it meet `limit`? `truth` is None where that is not known.

    A check that was made of others keeps them in `parts`: they are the evidence that is shown.
    """

    signal: str
    value: Any
    limit: str
    truth: bool | None
    parts: tuple[Check, ...] = ()

    def negated(self) -> Check:
        """The opposite question."""
        truth = None if self.truth is None else not self.truth
        return Check(self.signal, self.value, f"not {self.limit}", truth, self.parts)

    def said(self, limit: str) -> Check:
        """The same check with its limit in other words."""
        return Check(self.signal, self.value, limit, self.truth, self.parts)

    def evidence(self) -> tuple[Check, ...]:
        """The single checks that this one was made of and whose answer is known."""
        if not self.parts:
            return () if self.truth is None else (self,)
        return tuple(single for part in self.parts for single in part.evidence())

    def asked(self) -> tuple[str, ...]:
        """Keys of the facts that are not known and were asked for."""
        if not self.parts:
            return (self.signal,) if self.truth is None else ()
        return tuple(key for part in self.parts for key in part.asked())


def both(*checks: Check) -> Check:
    """True where all are; False where one is not; else not known (Kleene's "and")."""
    truths = [check.truth for check in checks]
    truth = False if False in truths else (None if None in truths else True)
    return _joined(checks, " and ", truth)


def either(*checks: Check) -> Check:
    """True where one is; False where none is; else not known (Kleene's "or")."""
    truths = [check.truth for check in checks]
    truth = True if True in truths else (None if None in truths else False)
    return _joined(checks, " or ", truth)


def _joined(checks: tuple[Check, ...], word: str, truth: bool | None) -> Check:
    signal = word.join(dict.fromkeys(check.signal for check in checks))
    limit = word.join(check.limit for check in checks)
    return Check(signal, None, limit, truth, checks)
