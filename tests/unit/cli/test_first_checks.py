"""A reload that adds an engine is done when that was looked at, or is too slow to be."""

from __future__ import annotations

import asyncio
from typing import Any

from mileage.cli.first_checks import first_checks
from mileage.scrape.target import PollStatus


class Watched:
    """Statuses of two engines, the new one of which is checked at the third look."""

    def __init__(self, checked_at: int | None) -> None:
        self.looks, self._checked_at = 0, checked_at

    def status(self) -> list[PollStatus]:
        self.looks += 1
        checked = self._checked_at is not None and self.looks >= self._checked_at
        return [_status("old", 1.0), _status("new", 2.0 if checked else None)]


def _status(name: str, checked_s: float | None) -> PollStatus:
    unknown: dict[str, Any] = dict.fromkeys(PollStatus.__struct_fields__)
    return PollStatus(**{**unknown, "name": name, "checked_s": checked_s})


def _wait(watched: Watched, names: set[str], timeout_s: float) -> None:
    async def waited() -> None:
        async with asyncio.timeout(60):
            await first_checks(names, watched.status, timeout_s)

    asyncio.run(waited())


def test_it_waits_for_the_first_check_of_what_is_new() -> None:
    watched = Watched(checked_at=3)
    _wait(watched, {"new"}, 60.0)
    assert watched.looks == 3


def test_who_is_not_new_or_not_watched_is_not_waited_for() -> None:
    watched = Watched(checked_at=None)
    _wait(watched, {"asleep"}, 60.0)
    assert watched.looks == 1


def test_one_that_does_not_answer_is_not_waited_for_long() -> None:
    watched = Watched(checked_at=None)
    _wait(watched, {"new"}, 0.03)
    assert watched.looks >= 1
