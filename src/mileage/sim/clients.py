"""Clients: those who wait for answers: what each of them is told, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mileage.core.actions import JoinKind
from mileage.core.request import Request
from mileage.sim.outcome import CANCELLED, FAILED, OK, REJECTED, Outcomes
from mileage.sim.sequence import Sequence
from mileage.workload.trace_request import TraceRequest

__all__ = ["Client", "Clients"]


class Client:
    """One request on its way. Those that `joined` it share its generation, or its call."""

    __slots__ = (
        "joined",
        "joined_s",
        "kind",
        "leader",
        "open_calls",
        "replica",
        "request",
        "row",
        "sequence",
        "trace",
    )

    def __init__(self, request: Request, row: int, sequence: Sequence, trace: TraceRequest) -> None:
        self.request, self.row, self.sequence, self.trace = request, row, sequence, trace
        self.replica = -1
        self.leader: Client | None = None
        self.kind: JoinKind | None = None
        self.joined: list[Client] | None = None
        self.joined_s = math.nan
        self.open_calls = 1
        """Sequences of its call that are not complete."""

    def join(self, leader: Client, kind: JoinKind, now_s: float) -> None:
        """It shares the leader's generation (same), or is part of its call (batch), from now on,
        with all that joined it before."""
        if leader.joined is None:
            leader.joined = []
        for each in (self, *(self.joined or ())):
            each.leader, each.kind, each.joined_s = leader, each.kind or kind, now_s
            leader.joined.append(each)
        self.joined = None

    def called(self) -> list[Client]:
        """Those with a sequence of their own in its call."""
        return [each for each in self.joined or () if each.kind == "batch"]

    def others_wait(self, waiting: Mapping[int, Client]) -> bool:
        """Whether somebody still waits for its generation."""
        return any(each.request.id in waiting for each in (self, *(self.joined or ())))


class Clients:
    """All requests that have not ended, by id; and the outcomes of all others."""

    def __init__(self) -> None:
        self.outcomes = Outcomes()
        self.waiting: dict[int, Client] = {}
        self.rejections: dict[str, int] = {}
        self.last_s = 0.0
        """When the last one so far ended."""

    def answered(self, client: Client, now_s: float) -> None:
        """The client's generation is complete: its own, or the one that it joined."""
        sequence = client.sequence
        if self._close(client, OK, now_s):
            self._record(client.row, client, sequence)
        if client.joined is None:
            return
        out = self.outcomes
        for other in client.joined:
            if not self._close(other, OK, now_s):
                continue
            if other.kind == "batch":
                self._record(other.row, client, other.sequence)
                continue
            self._record(other.row, client, sequence)
            out.joined[other.row] = 1
            # What was there when it joined came to it at once.
            first_s = max(sequence.first_token_s, other.joined_s)
            out.ttft_s[other.row] = first_s - other.request.arrived_s

    def _record(self, row: int, client: Client, sequence: Sequence) -> None:
        out = self.outcomes
        out.ttft_s[row] = sequence.first_token_s - out.arrived_s[row]
        out.itl_p99_s[row] = sequence.itl_p99_s
        out.itl_mean_s[row] = sequence.itl_mean_s
        out.output_tokens[row] = sequence.produced
        if sequence.cached_tokens > 0:
            out.cached_tokens[row] = sequence.cached_tokens
        if sequence.preemptions:
            out.preemptions[row] = sequence.preemptions
        out.replica[row] = client.replica

    def rejected(self, client: Client, reason: str, now_s: float) -> None:
        """It is refused, with all that joined it."""
        for each in (client, *(client.joined or ())):
            if self._close(each, REJECTED, now_s):
                self.rejections[reason] = self.rejections.get(reason, 0) + 1

    def failed(self, client: Client, now_s: float) -> None:
        """No engine can serve it, nor what joined it."""
        for each in (client, *(client.joined or ())):
            self._close(each, FAILED, now_s)

    def left(self, client: Client, now_s: float) -> None:
        """It waits no longer; what it was sent until then is in its row."""
        self._close(client, CANCELLED, now_s)

    def _close(self, client: Client, status: int, now_s: float) -> bool:
        """False: it has left already."""
        if self.waiting.pop(client.request.id, None) is None:
            return False
        out, row = self.outcomes, client.row
        out.status[row] = status
        out.e2e_s[row] = now_s - out.arrived_s[row]
        self.last_s = now_s
        return True
