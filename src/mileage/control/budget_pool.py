"""Budget pool: one budget in one window, and the parts of it that several gateways hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["PartGrant", "PartReport", "PoolPart", "exchange"]

_CHUNKS_PER_GATEWAY = 2
"""As among workers: with n gateways each gets 1/(2 n) of what is left at a time."""


class PartReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a gateway tells of an account in a window, of which the whole is `amount`."""

    account: str
    window: int
    ends_utc_s: int
    amount: int
    part: int
    """What it knows that it was granted; less than what the pool knows where an answer was lost,
    or the gateway begins anew."""
    spent: int
    kept: int
    """Spent, or held by its workers."""
    wanted: int
    """What it lacks for those who ask for more."""


class PartGrant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a gateway is told: how much of the account it may lend in the window, in all."""

    account: str
    window: int
    granted: int
    recalled: bool = False
    """Another one waits for what this one does not need."""
    last: bool = False
    """There is no more: nobody who is there holds any that is not spent."""
    uncertain: int = 0
    """Held by gateways that are not there: it counts as spent until they are back."""


class PoolPart(msgspec.Struct, gc=False):
    """What one gateway holds. `place` is its place among those who wait, 0 for none; `live`: it was
    heard of lately."""

    granted: int = 0
    spent: int = 0
    wanted: int = 0
    place: int = 0
    live: bool = True

    @property
    def held(self) -> int:
        """What nobody else may have."""
        return max(self.granted, self.spent)


def exchange(parts: Mapping[str, PoolPart], gateway: str, report: PartReport) -> PartGrant:
    """Take one gateway's report, change its part (which must be in `parts`), and answer.

    What all hold never sums to more than the amount by what is granted here, whatever the order of
    reports, however many are lost: a part only shrinks by its own gateway's word. That of one that
    died is held in full; back again it reports what was spent by the ledger, and that is its part.

    Those who wait are served in order. Who is not first is to give all back that its workers do
    not hold, so that a budget in pieces is not passed to and fro. It does so with its next report:
    between report and answer it may have lent more.
    """
    mine = parts[gateway]
    mine.live = True
    mine.spent = max(mine.spent, report.spent)
    mine.granted = max(report.kept, min(mine.granted, report.part))
    mine.wanted = report.wanted
    if not report.wanted:
        mine.place = 0
    elif not mine.place:
        mine.place = 1 + max(part.place for part in parts.values())
    waiting = [part for part in parts.values() if part.live and part.wanted]
    first = min(waiting, key=_place, default=None)
    unlent = report.amount - sum(part.held for part in parts.values())
    recalled = unlent < 0 or (first is not None and first is not mine and first.wanted > unlent)
    last = False
    if mine is first and not (last := _serve(parts, mine, max(0, unlent))) and not mine.place:
        recalled = False
    return PartGrant(
        account=report.account,
        window=report.window,
        granted=mine.granted,
        recalled=recalled,
        last=last,
        uncertain=sum(
            max(0, part.granted - part.spent) for part in parts.values() if not part.live
        ),
    )


def _serve(parts: Mapping[str, PoolPart], mine: PoolPart, unlent: int) -> bool:
    """Grant what the first one waits for, if it can be had now; True: that is the last."""
    live = [part for part in parts.values() if part.live]
    enough = unlent >= mine.wanted
    if enough:
        chunk = unlent if len(live) == 1 else -(-unlent // (_CHUNKS_PER_GATEWAY * len(live)))
        mine.granted += max(mine.wanted, chunk)
    elif any(part.granted > part.spent for part in live if part is not mine):
        return False  # it may come back
    else:
        mine.granted += unlent
    mine.wanted = mine.place = 0
    return not enough


def _place(part: PoolPart) -> int:
    return part.place
