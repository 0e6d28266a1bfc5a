"""Replay: feeds a journal to a controller and requires the very same actions."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, cast

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.journal import JournalHeader
from mileage.control.journal_decoder import JournalRecord
from mileage.control.snapshot import restore_state
from mileage.core.actions import Action
from mileage.core.errors import TraceError
from mileage.core.request import Endpoint

__all__ = ["Difference", "FailedOpen", "Replayer", "controller_of"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first record whose replay was not the same."""

    source: str
    record: JournalRecord
    actions: tuple[Action, ...]
    """What the controller answered in the replay."""
    error: str | None = None
    """The exception that it raised instead."""


class FailedOpen(msgspec.Struct, frozen=True, kw_only=True):
    """A record at which a part of the controller raised, and it went on routing only."""

    source: str
    record: int
    failure: str


class Replayer:
    """Replays the segments of one worker in their order.

    A segment that goes on from the last one is fed to the same controller, which proves the whole
    chain; before any other one the controller is restored from the segment's own snapshot.
    """

    def __init__(self) -> None:
        self.records = 0
        self.events: Counter[str] = Counter()
        """By kind, as recorded."""
        self.actions: Counter[str] = Counter()
        """By kind, as recorded; rejections as `reject:REASON`."""
        self.difference: Difference | None = None
        self.failed_open: list[FailedOpen] = []
        self.restored = 0
        """Times that a controller was made or restored."""
        self._controller: Controller | None = None
        self._source = ""
        self._failure: str | None = None

    def begin(self, header: JournalHeader, source: str, *, goes_on: bool) -> None:
        """The records that follow are of this segment; `source` names it. Raises TraceError."""
        self._source = source
        if self._controller is None or not goes_on:
            self._controller = controller_of(header, source)
            self._failure = self._controller.failure
            self.restored += 1

    def step(self, record: JournalRecord) -> Difference | None:
        """Replay one record; what was not the same. After that the rest says nothing."""
        controller = self._controller
        assert controller is not None, "begin comes first"
        self.records += 1
        self.events[_tag(record.event)] += 1
        for action in record.actions:
            self.actions[_action_kind(action)] += 1
        error = None
        actions: tuple[Action, ...] = ()
        try:
            actions = tuple(controller.handle(record.event, record.now_s))
        except Exception as raised:  # a recorded exception is to be raised again
            error = describe_error(raised)
        if not (error == record.error and _same(actions, record.actions)):
            self.difference = Difference(
                source=self._source, record=record, actions=actions, error=error
            )
        if controller.failure is not self._failure:
            self._failure = controller.failure
            if self._failure is not None:
                self.failed_open.append(
                    FailedOpen(source=self._source, record=record.number, failure=self._failure)
                )
        return self.difference


def controller_of(
    header: JournalHeader, source: str, config: ControlConfig | None = None
) -> Controller:
    """The controller as it was when the segment began; a new one may get another configuration.

    Raises TraceError for a state, or a configuration, that this version cannot take.
    """
    if header.state is not None:
        state = restore_state(header.state, source)
        if type(state) is not Controller:
            raise TraceError(source, 0, f"the state is a {type(state).__name__}, no controller")
        return state
    try:
        return Controller(
            header.replicas,
            config=config or msgspec.json.decode(header.config, type=ControlConfig),
            random=Random(header.seed),  # noqa: S311 -- routing, not secrets
            lacks=cast(dict[str, tuple[Endpoint, ...]], header.lacks),
        )
    except msgspec.MsgspecError as error:
        raise TraceError(source, 0, f"the configuration is not of this version: {error}") from None


def describe_error(error: Exception) -> str:
    """An exception as the journal holds it."""
    return f"{type(error).__name__}: {error}"


def _same(ours: tuple[Action, ...], recorded: tuple[Action, ...]) -> bool:
    """Equal in kinds and values; a figure that is no number is equal to itself."""
    return ours == recorded or msgspec.msgpack.encode(ours) == msgspec.msgpack.encode(recorded)


def _tag(value: Any) -> str:
    return str(type(value).__struct_config__.tag)


def _action_kind(action: Action) -> str:
    kind = _tag(action)
    reason = getattr(action, "reason", None) if kind == "reject" else None
    return kind if reason is None else f"{kind}:{reason}"
