"""Decisions: the governor's last ones with their reasons, for people."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

__all__ = ["Decision", "Decisions"]

_KEPT = 50
_TOGETHER_S = 1.0
"""Refusals for the same reason, to the same tenant, this close together are one entry."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was decided at `at_s` (monotonic).

    limit: `subject` is the replica and `limit` what it may run at once from then on; refused:
    `subject` is the tenant, `count` requests were refused for `reason` (a RejectReason), `detail`
    says what the last of them was told; failed: a part of the governor failed and was left out.
    """

    at_s: float
    kind: Literal["limit", "refused", "failed"]
    subject: str
    reason: str
    detail: str | None = None
    limit: int | None = None
    count: int = 1


class Decisions:
    """The last fifty about limits, and the last fifty refusals, which do not push those out.

    Many refusals of a kind in one second are one entry, with their number.
    """

    __slots__ = ("_limits", "_refusals", "_refused")

    def __init__(self) -> None:
        self._limits: deque[Decision] = deque(maxlen=_KEPT)
        self._refusals: deque[Decision] = deque(maxlen=_KEPT)
        self._refused: dict[tuple[str, str], Decision] = {}

    def add(self, decision: Decision) -> None:
        """Keep a decision about a limit."""
        self._limits.append(decision)

    def refused(self, tenant: str, reason: str, detail: str | None, now_s: float) -> None:
        """A request of the tenant was refused."""
        key = (tenant, reason)
        entry = self._refused.get(key)
        if entry is not None and now_s - entry.at_s < _TOGETHER_S:
            self._refused[key] = msgspec.structs.replace(
                entry, count=entry.count + 1, detail=detail
            )
            return
        if entry is not None:
            self._refusals.append(entry)
        elif len(self._refused) >= _KEPT:
            self._refusals.append(self._refused.pop(next(iter(self._refused))))
        self._refused[key] = Decision(
            at_s=now_s, kind="refused", subject=tenant, reason=reason, detail=detail
        )

    def latest(self) -> list[Decision]:
        """In the order of time, those that are still being counted included."""
        refusals = sorted([*self._refusals, *self._refused.values()], key=lambda d: d.at_s)
        return sorted([*self._limits, *refusals[-_KEPT:]], key=lambda d: d.at_s)
