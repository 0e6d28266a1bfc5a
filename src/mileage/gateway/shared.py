"""Shared: what a request's record says of others that shared its generation."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALONE", "Shared"]


class Shared(NamedTuple):
    """As in RequestTimeline."""

    merged_into: int | None = None
    merged_members: int | None = None


ALONE = Shared()
"""No other request had a part in it."""
