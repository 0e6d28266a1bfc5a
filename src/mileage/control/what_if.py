"""WhatIf: the requests of a journal under another configuration: an open-loop estimate."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.control.journal import JournalHeader
from mileage.control.journal_decoder import JournalRecord
from mileage.control.replay import controller_of
from mileage.control.tally import Tally, TallySummary
from mileage.core.actions import Action, Dispatch, Join, Reject, SetLimit, WakeAt
from mileage.core.errors import MileageError
from mileage.core.events import (
    Arrived,
    Cancelled,
    ConfigChanged,
    Event,
    Failed,
    Finished,
    FirstToken,
    Woke,
)

__all__ = ["WhatIf", "WhatIfResult"]


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """What happened and what would have happened. `assumed` requests were sent in the estimate
    only: the journal has no answer of an engine to them, so they were given a mean one."""

    recorded: TallySummary
    estimated: TallySummary
    assumed: int


class _Request:
    """One request in both worlds. `replica`: where the estimate sent it, None while it is not."""

    __slots__ = ("due_s", "parked", "replica", "sent_s", "stream", "unanswered", "was_sent_s")

    def __init__(self, stream: bool) -> None:
        self.stream = stream
        self.replica: str | None = None
        self.sent_s = self.was_sent_s = self.due_s = 0.0
        self.parked: list[tuple[float, Event]] = []
        """What was recorded of it, with the time since it was sent, while it waits here."""
        self.unanswered = False
        """In the journal it was refused, or shared another's answer."""


class _Mean:
    """A plain mean of what was seen so far; None before."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._count = 0

    def add(self, value: float) -> None:
        self._count += 1
        known = self.value or 0.0
        self.value = known + (value - known) / self._count


class WhatIf:
    """Feeds the arrivals of a journal to a controller with another configuration.

    Engines answer each request after as long a time since its dispatch as they did, whatever else
    is in flight: an engine that would have been relieved is not faster here, and one that would
    have had more to do is not slower. Clients who left leave at the same time. Of a configuration
    that changed on the way only the replicas are followed: the rest of `config` holds throughout.
    """

    def __init__(self, config: ControlConfig) -> None:
        self._config = config
        self._controller: Controller | None = None
        self._requests: dict[int, _Request] = {}
        self._apart: set[int] = set()
        """Refused here, or sharing another's answer, and not so in the journal: what was recorded
        of them is not told."""
        self._now_s = 0.0
        self._agenda: list[tuple[float, int, Event]] = []
        self._order = count()
        self._wake_s: float | None = None
        self._first_s, self._answer_s = _Mean(), _Mean()
        self._assumed = 0
        self.recorded, self.estimated = Tally(), Tally()

    def begin(self, header: JournalHeader, source: str, *, goes_on: bool) -> None:
        """The records that follow are of this segment. Raises TraceError."""
        if self._controller is not None and goes_on:
            return
        self._requests.clear()
        self._apart.clear()
        self._agenda.clear()
        self._wake_s = None
        controller = self._controller = controller_of(header, source, self._config)
        if header.state is not None:
            settings = msgspec.json.encode(self._config).decode()
            event = ConfigChanged(controller.version + 1, settings)
            self._do(controller.handle(event, header.began_s), header.began_s)
        self._note_limits(controller, header.began_s)

    def _note_limits(self, controller: Controller, now_s: float) -> None:
        """Count the limits that no action tells: those that replicas begin with."""
        for state in controller.replica_states():
            if state.limit is not None:
                action = SetLimit(state.name, state.limit, state.limit_reason or "")
                self.estimated.did(action, now_s)

    def step(self, record: JournalRecord) -> None:
        """Go on by one record."""
        now_s, event = record.now_s, record.event
        self._now_s = now_s
        self._catch_up(now_s)
        if isinstance(event, Arrived):
            self.recorded.arrived += 1
            self.estimated.arrived += 1
            self._requests[event.request.id] = _Request(event.request.stream)
            self._tell(event, now_s)
        elif isinstance(event, FirstToken | Finished | Failed | Cancelled):
            self._answer(event, now_s)
        elif isinstance(event, ConfigChanged):
            self._reconfigure(event, now_s)
        elif not isinstance(event, Woke):
            self._tell(event, now_s)
        for action in record.actions:
            self.recorded.did(action, now_s)
            self._was_done(action, now_s)

    def result(self) -> WhatIfResult:
        """Both worlds so far."""
        self._catch_up(self._now_s)
        return WhatIfResult(
            recorded=self.recorded.summary(),
            estimated=self.estimated.summary(),
            assumed=self._assumed,
        )

    def _reconfigure(self, event: ConfigChanged, now_s: float) -> None:
        """The configuration changed: of that only which replicas there are counts here."""
        try:
            recorded = msgspec.json.decode(event.settings, type=ControlConfig)
        except (msgspec.DecodeError, MileageError):
            return  # its controller kept the old one, too
        self._config = msgspec.structs.replace(
            self._config,
            replicas=recorded.replicas,
            lacks=recorded.lacks,
            replica_gpus={**recorded.replica_gpus, **self._config.replica_gpus},
            replica_running_max={
                **recorded.replica_running_max,
                **self._config.replica_running_max,
            },
        )
        settings = msgspec.json.encode(self._config).decode()
        self._tell(ConfigChanged(event.version, settings), now_s)
        assert self._controller is not None
        self._note_limits(self._controller, now_s)

    # --- what was recorded --------------------------------------------------------------------

    def _was_done(self, action: Action, now_s: float) -> None:
        """What the recorded controller did with a request."""
        if not isinstance(action, Dispatch | Reject | Join):
            return
        request = self._requests.get(action.request_id)
        if request is None:
            if not isinstance(action, Dispatch):
                self._apart.discard(action.request_id)  # nothing more will come of it
            return
        if isinstance(action, Dispatch):
            request.was_sent_s = now_s
            return
        request.unanswered = True
        if request.replica is not None:
            self._assume(action.request_id, request, request.sent_s)

    def _answer(self, event: FirstToken | Finished | Failed | Cancelled, now_s: float) -> None:
        """What a request's engine or client did."""
        request_id = event.request_id
        ended = not isinstance(event, FirstToken) and not (
            isinstance(event, Failed) and event.retryable
        )
        if ended:
            self.recorded.gone(request_id)
        request = self._requests.get(request_id)
        if isinstance(event, Cancelled) or (request is None and request_id not in self._apart):
            # Clients leave when they left; what began before the first record goes on as it did.
            self._end(request_id)
            self._tell(event, now_s)
        if ended:
            self._apart.discard(request_id)
        if isinstance(event, Cancelled) or request is None:
            return
        after_s = now_s - request.was_sent_s
        if isinstance(event, Finished):
            self._answer_s.add(after_s)
        elif isinstance(event, FirstToken):
            self._first_s.add(after_s)
        if request.replica is None:
            request.parked.append((after_s, event))
        else:
            due_s = request.sent_s + after_s if request.sent_s != request.was_sent_s else now_s
            self._plan(request, due_s, event, now_s)

    # --- what would have been -----------------------------------------------------------------

    def _tell(self, event: Event, now_s: float) -> None:
        assert self._controller is not None, "begin comes first"
        self._do(self._controller.handle(event, now_s), now_s)

    def _do(self, actions: Iterable[Action], now_s: float) -> None:
        for action in actions:
            self.estimated.did(action, now_s)
            if isinstance(action, WakeAt):
                self._wake_s = action.at_s
            elif isinstance(action, Reject | Join):
                request = self._requests.get(action.request_id)
                if request is not None and not request.unanswered:
                    self._apart.add(action.request_id)
                self._end(action.request_id)
            elif isinstance(action, Dispatch):
                request = self._requests.get(action.request_id)
                if request is not None:
                    self._sent(action, request, now_s)

    def _sent(self, action: Dispatch, request: _Request, now_s: float) -> None:
        request.replica, request.sent_s = action.replica, now_s
        if request.unanswered:
            self._assume(action.request_id, request, now_s)
        parked, request.parked = request.parked, []
        for after_s, event in parked:
            self._plan(request, now_s + after_s, event, now_s)

    def _assume(self, request_id: int, request: _Request, now_s: float) -> None:
        """Give the request a mean answer; it teaches the controller nothing."""
        request.unanswered = False
        self._assumed += 1
        if self._answer_s.value is None:
            self._plan(request, now_s, Cancelled(request_id), now_s)
            return
        if request.stream and self._first_s.value is not None:
            self._plan(request, now_s + self._first_s.value, FirstToken(request_id), now_s)
        self._plan(request, now_s + self._answer_s.value, Finished(request_id), now_s)

    def _plan(self, request: _Request, due_s: float, event: Event, now_s: float) -> None:
        """Tell the event when it is due, after all that was planned for its request before."""
        request.due_s = max(due_s, request.due_s, now_s)
        heappush(self._agenda, (request.due_s, next(self._order), event))

    def _catch_up(self, now_s: float) -> None:
        """Tell all that is due by now, in order of time."""
        while True:
            planned_s = self._agenda[0][0] if self._agenda else None
            wake_s = self._wake_s
            if wake_s is not None and wake_s <= now_s and (planned_s is None or wake_s < planned_s):
                self._wake_s = None
                self._tell(Woke(), wake_s)
            elif planned_s is not None and planned_s <= now_s:
                self._happen(heappop(self._agenda)[2], planned_s)
            else:
                return

    def _happen(self, event: Event, now_s: float) -> None:
        """What was planned, at the replica where the request is here."""
        assert isinstance(event, FirstToken | Finished | Failed | Cancelled)
        request = self._requests.get(event.request_id)
        if request is None or request.replica is None:
            return
        if isinstance(event, Failed):
            event = Failed(event.request_id, request.replica, event.kind, event.retryable)
            request.replica = None
            if not event.retryable:
                self._end(event.request_id)
        elif not isinstance(event, FirstToken):
            self._end(event.request_id)
        self._tell(event, now_s)

    def _end(self, request_id: int) -> None:
        self._requests.pop(request_id, None)
        self.estimated.gone(request_id)
