"""First checks: a reload that adds replicas is done when each of them was looked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from mileage.scrape.target import PollStatus

__all__ = ["first_checks"]

_LOOK_S = 0.02


async def first_checks(
    names: Collection[str], statuses: Callable[[], Iterable[PollStatus]], timeout_s: float
) -> None:
    """Wait until each of these that is watched was checked, for so long at the most.

    Who is told that an engine is in use sends requests: they are refused until it was found up.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while loop.time() < until_s:
        if not any(each.checked_s is None for each in statuses() if each.name in names):
            return
        await asyncio.sleep(_LOOK_S)
