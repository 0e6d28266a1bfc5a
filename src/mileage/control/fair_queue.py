"""FairQueue: requests that are held, by deadline, with a weighted fair share between tenants."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from mileage.control.flight import Flight
from mileage.control.replicas import Takers
from mileage.core.request import Priority

__all__ = ["PRIORITY_FACTOR", "FairQueue", "FairShare", "Flow", "least_urgent", "next_held"]

PRIORITY_FACTOR: dict[Priority, float] = {"high": 16.0, "normal": 4.0, "low": 1.0}
"""A class is a factor of the weight, so that none starves: while all three want more than there
is, they get 16, 4 and 1 parts of it, and one that asks for less than its part hardly waits."""

_FLOWS_MAX = 10_000
_ROUNDING = 1e-9


class Flow:
    """One tenant's requests of one priority: `virtual` is the work it got, over its weight."""

    __slots__ = ("held", "virtual", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.virtual = 0.0
        self.held = 0


class FairShare:
    """Who has had how much of the same replicas: start-time fair queuing.

    A request that is sent moves its flow on by work / weight (after Goyal, Vin, Cheng 1996). The
    system's time is that of the flow that is least far among those that wait; a flow that was away
    comes back at the system's time: it gets its share from now on, and nothing for the past.
    """

    __slots__ = ("_flows", "_waiting", "virtual")

    def __init__(self) -> None:
        self._flows: dict[tuple[str, Priority], Flow] = {}
        self._waiting: dict[Flow, None] = {}
        """Flows of which something is held: few of the many there may be."""
        self.virtual = 0.0

    def flow(self, tenant: str, priority: Priority, weight: float) -> Flow:
        """The flow of a tenant's requests of that priority."""
        flow = self._flows.get((tenant, priority))
        if flow is None:
            if len(self._flows) >= _FLOWS_MAX:
                self._forget_idle()
            flow = self._flows[tenant, priority] = Flow(weight * PRIORITY_FACTOR[priority])
            flow.virtual = self.virtual
        return flow

    def reweigh(self, weights: dict[str, float]) -> None:
        """Weights have changed; what each flow has had stays."""
        for (tenant, priority), flow in self._flows.items():
            flow.weight = weights.get(tenant, 1.0) * PRIORITY_FACTOR[priority]

    def hold(self, flow: Flow) -> None:
        """One more of the flow's requests is held."""
        if not flow.held:
            flow.virtual = max(flow.virtual, self.virtual)
            self._waiting[flow] = None
        flow.held += 1

    def let_go(self, flow: Flow) -> None:
        """One less of them is held."""
        flow.held -= 1
        if not flow.held:
            del self._waiting[flow]

    def charge(self, flow: Flow, work: float) -> None:
        """The flow's next request, which was held, is sent."""
        flow.virtual += work / flow.weight
        if self._waiting:
            least = min([waiting.virtual for waiting in self._waiting])
            self.virtual = max(self.virtual, least)

    def correct(self, flow: Flow, work: float) -> None:
        """The flow's request was this much more work than it was charged; less, where negative."""
        flow.virtual += work / flow.weight

    def _forget_idle(self) -> None:
        """Forget flows that hold nothing and are not ahead: they would start afresh anyway."""
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.held or flow.virtual > self.virtual
        }


class _Lane:
    """What one flow has in one queue."""

    __slots__ = ("heap", "work")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Flight]] = []
        self.work = 0.0


class FairQueue:
    """Requests held for the same replicas. Within a flow the earliest deadline is first.

    A deadline is absolute, so that the order never changes while requests wait. One that has been
    taken out of its turn stays in its heap, marked, until it comes to the top.
    """

    __slots__ = ("_lanes", "_sequence", "count", "share", "takers", "work")

    def __init__(self, takers: Takers, share: FairShare) -> None:
        self.takers = takers
        self.share = share
        self.count = 0
        self.work = 0.0
        self._lanes: dict[Flow, _Lane] = {}
        self._sequence = 0

    def __iter__(self) -> Iterator[Flight]:
        for lane in self._lanes.values():
            yield from (flight for _, _, flight in lane.heap if flight.queue is self)

    def push(self, flight: Flight) -> None:
        """Hold the request."""
        flow = flight.flow
        self.share.hold(flow)
        flight.queue = self
        self.count += 1
        self.work += flight.cost
        self._sequence += 1
        lane = self._lanes.get(flow)
        if lane is None:
            lane = self._lanes[flow] = _Lane()
        lane.work += flight.cost
        heapq.heappush(lane.heap, (flight.deadline_s, self._sequence, flight))

    def grow(self, flight: Flight, work: float) -> None:
        """A request that is held has become so much more work; less, where negative."""
        flight.cost += work
        self.work += work
        self._lanes[flight.flow].work += work

    def remove(self, flight: Flight) -> None:
        """The request waits no longer."""
        flow = flight.flow
        flight.queue = None
        self.share.let_go(flow)
        self.count -= 1
        self.work = self.work - flight.cost if self.count else 0.0
        lane = self._lanes[flow]
        lane.work -= flight.cost
        heap = lane.heap
        while heap and heap[0][2].queue is not self:
            heapq.heappop(heap)
        if not heap:
            del self._lanes[flow]

    def heads(self) -> list[Flight]:
        """The first request of every flow."""
        return [lane.heap[0][2] for lane in self._lanes.values()]

    def head(self, flow: Flow) -> Flight | None:
        """The first request of one flow."""
        lane = self._lanes.get(flow)
        return None if lane is None else lane.heap[0][2]

    def longest(self) -> tuple[float, Flow]:
        """The flow that has most waiting here for its weight, and how much."""
        return max(
            ((lane.work / flow.weight, flow) for flow, lane in self._lanes.items()),
            key=lambda found: found[0],
        )

    def waiting(self, flow: Flow) -> float:
        """Work of the flow that waits here."""
        lane = self._lanes.get(flow)
        return 0.0 if lane is None else lane.work

    def last(self, flow: Flow) -> Flight:
        """The flow's request that would be served last."""
        heap = self._lanes[flow].heap
        return max(entry for entry in heap if entry[2].queue is self)[2]

    def work_before(self, flow: Flow, work: float) -> float:
        """Work that would be done before one more request of the flow, at most.

        Before it are those of its flow; meanwhile the others get no more than their shares.
        """
        if not self.count:
            return 0.0
        lane = self._lanes.get(flow)
        own = lane.work if lane is not None else 0.0
        others = self.work - own
        if len(self._lanes) == (lane is not None):
            return own
        weights = sum(other.weight for other in self._lanes if other is not flow)
        ahead = max(0.0, flow.virtual - self.share.virtual) * flow.weight
        return own + min(others, (own + work + ahead) * weights / flow.weight)


def next_held(queues: Iterable[FairQueue], slack_work: float) -> Flight | None:
    """Which request is served next: the earliest deadline among the flows that are not ahead.

    A flow is ahead when it is more than `slack_work`, over its weight, past the one that has had
    least: deadlines decide in the small, shares in the large. Each is measured from the time of
    its own system, as queues of different pools have no time in common.
    """
    heads = [
        (flight.flow.virtual - queue.share.virtual, flight)
        for queue in queues
        for flight in queue.heads()
    ]
    if len(heads) < 2:
        return heads[0][1] if heads else None
    least = min(ahead for ahead, _ in heads)
    weights = sum(flight.flow.weight for _, flight in heads)
    behind = least + slack_work / weights
    return min(
        (flight for ahead, flight in heads if ahead <= behind),
        key=lambda flight: (flight.deadline_s, flight.request.id),
    )


def least_urgent(queues: Iterable[FairQueue], newcomer: Flight) -> Flight | None:
    """Which request gives its place up to a newcomer for which there is none; None: it has to go.

    It is the last one of the flow that has most waiting for its weight, so that nobody who floods
    the queue keeps others out of it (buffer stealing: McKenney 1990). Within a flow who came first
    stays.
    """
    flow = newcomer.flow
    found, most = None, 0.0
    own = newcomer.cost
    for queue in queues:
        weighed, longest = queue.longest()
        if weighed > most:
            found, most = (queue, longest), weighed
        if queue.takers is newcomer.takers:
            own += queue.waiting(flow)
    if found is None or found[1] is flow or most <= own / flow.weight * (1.0 + _ROUNDING):
        return None
    return found[0].last(found[1])
