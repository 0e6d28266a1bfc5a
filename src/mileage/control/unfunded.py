"""Unfunded: requests that are held until the budget of their tenant has room for them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from mileage.control.flight import Flight
from mileage.control.intake import Intake
from mileage.core.actions import Reject

__all__ = ["Unfunded"]


class Unfunded:
    """Each tenant's in the order of their coming: those behind the first one wait for it.

    All that is done often costs the same however many wait.
    """

    __slots__ = ("_by_tenant", "_expiries", "_sequence", "total")

    def __init__(self) -> None:
        self._by_tenant: dict[str, dict[int, Flight]] = {}
        self._expiries: list[tuple[float, int, Flight]] = []  # a heap; those that left are skipped
        self._sequence = 0
        self.total = 0
        """All that wait."""

    def __bool__(self) -> bool:
        return self.total > 0

    def count(self, tenant: str) -> int:
        """How many of the tenant's wait."""
        return len(self._by_tenant.get(tenant, ()))

    @property
    def due_s(self) -> float:
        """When the next one has waited too long; inf: none waits."""
        expiries = self._expiries
        while expiries and not self._waits(expiries[0][2]):
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else math.inf

    def add(self, flight: Flight) -> None:
        """The request waits from now on."""
        request = flight.request
        self._by_tenant.setdefault(request.tenant, {})[request.id] = flight
        self.total += 1
        self._sequence += 1
        heapq.heappush(self._expiries, (flight.expires_s, self._sequence, flight))

    def remove(self, flight: Flight) -> None:
        """The request waits no longer; nothing, where it did not."""
        if not self._waits(flight):
            return
        tenant = flight.request.tenant
        waiting = self._by_tenant[tenant]
        del waiting[flight.request.id]
        self.total -= 1
        if not waiting:
            del self._by_tenant[tenant]

    def first(self, tenant: str) -> Flight | None:
        """The tenant's that has waited longest."""
        return next(iter(self._by_tenant.get(tenant, {}).values()), None)

    def expired(self, now_s: float) -> Iterator[Flight]:
        """Those that have waited too long: each is to be removed before the next is asked for."""
        while self.due_s <= now_s:
            yield self._expiries[0][2]

    def funded(self, intake: Intake, now_s: float) -> Iterator[tuple[Flight, Reject | None]]:
        """Those that wait no longer: to be placed, or refused; each before the next is asked for.

        In order: those behind one that still has no room are not tried.
        """
        for tenant in intake.take_ready():
            while (flight := self.first(tenant)) is not None:
                refusal = intake.fund(flight, now_s)
                if refusal is None and flight.unfunded:
                    break
                self.remove(flight)
                yield flight, refusal
        for flight in self.expired(now_s):
            yield flight, intake.unfunded(flight)

    def _waits(self, flight: Flight) -> bool:
        waiting = self._by_tenant.get(flight.request.tenant)
        return waiting is not None and waiting.get(flight.request.id) is flight
