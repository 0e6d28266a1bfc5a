"""Alarm: when the controller is to be woken next, asked for once."""

from __future__ import annotations

import math

from mileage.core.actions import Action, WakeAt

__all__ = ["Alarm"]


class Alarm:
    """Asks its host for a Woke at the time that is due, unless that was asked before."""

    __slots__ = ("_at_s",)

    def __init__(self) -> None:
        self._at_s = math.inf

    def ask(self, due_s: float, now_s: float) -> tuple[Action, ...]:
        """What is to be asked for something that is due then; infinite: nothing is."""
        if due_s == math.inf or now_s < self._at_s <= due_s:
            return ()
        self._at_s = due_s
        return (WakeAt(due_s),)

    def rang(self) -> None:
        """The time that was asked for has come."""
        self._at_s = math.inf
