"""Move: how the engines of one configuration become those of another."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mileage.engines.remote import RemoteEngine
from mileage.scrape.target import PollTarget

__all__ = ["Move", "move_between", "target_of"]


class Move(NamedTuple):
    """From the engines `before` to others: names of those to be left, and those to be joined.

    One that changes is left and joined.
    """

    before: tuple[RemoteEngine, ...]
    engines: tuple[RemoteEngine, ...]
    left: tuple[str, ...]
    joined: tuple[RemoteEngine, ...]


def move_between(before: tuple[RemoteEngine, ...], engines: tuple[RemoteEngine, ...]) -> Move:
    """Leave and join what is watched otherwise, or sleeps otherwise."""
    now, then = (
        {each.name: (target_of(each), each.sleep_level) for each in some}
        for some in (before, engines)
    )
    left = tuple(name for name, target in now.items() if then.get(name) != target)
    joined = tuple(each for each in engines if now.get(each.name) != then[each.name])
    return Move(before, engines, left, joined)


def target_of(engine: RemoteEngine) -> PollTarget:
    """What the poller asks of it."""
    return msgspec.convert(engine, PollTarget, from_attributes=True)
