"""Why something is not simulated: a value, for it is the usual case and no failure."""

from __future__ import annotations

import msgspec

__all__ = ["Unsimulated"]


class Unsimulated(msgspec.Struct, frozen=True):
    """`why` is for people, such as "the model is not known"."""

    why: str
