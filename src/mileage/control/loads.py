"""Loads: requests that are held until their model is loaded: it sleeps, or is an adapter."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Literal

from mileage.control.config import LoadsConfig
from mileage.control.flight import Flight
from mileage.control.replicas import Replicas, Takers
from mileage.core.actions import Action, Hold, Load, Reject
from mileage.core.events import Loadable, LoadFailed

__all__ = ["Loads"]

_FAILED_MAX = 10_000
"""Models whose last load has failed; no more are remembered than may be loadable at all."""
_RETRY_S = 1.0
_EXPIRIES_SPARE = 64


class Loads:
    """Requests by model, in the order of their coming, and the models that could not be loaded.

    A load is asked for with the first request that is held for a model; the host tells how it went
    with a ReplicaUp that has the model, or a LoadFailed. All that is done often costs the same
    however many wait.
    """

    __slots__ = ("_config", "_expiries", "_failed", "_replicas", "_sequence", "_waiting", "total")

    def __init__(self, config: LoadsConfig, replicas: Replicas) -> None:
        self._config, self._replicas = config, replicas
        self._waiting: dict[str, dict[int, Flight]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        """When a load may be tried again, and what went wrong."""
        self._expiries: list[tuple[float, int, Flight]] = []  # a heap; those that left are skipped
        self._sequence = 0
        self.total = 0
        """All that wait."""

    def reconfigure(self, config: LoadsConfig) -> None:
        """Hold by this from now on; what is held keeps what it was promised."""
        self._config = config

    def waiting(self) -> dict[str, int]:
        """How many are held for each model."""
        return {model: len(flights) for model, flights in self._waiting.items()}

    def can(self, flight: Flight) -> bool:
        """Whether some replica that does not have the request's model would load it."""
        found = self._replicas.find(flight.request)
        return found is not None and _loads(found[1], flight.request.model)

    def loads(self, replica: str, model: str) -> bool:
        """Whether the replica loads the model when asked."""
        found = self._replicas.get(replica)
        return found is not None and model in found.loadable

    def told(self, event: Loadable | LoadFailed, now_s: float) -> bool:
        """Take in what the host tells of models; False: of a replica that is not known."""
        if isinstance(event, LoadFailed):
            self._failed[event.model] = (now_s + event.retry_after_s, event.reason)
            if len(self._failed) > _FAILED_MAX:
                del self._failed[next(iter(self._failed))]
            return True
        replica = self._replicas.get(event.replica)
        if replica is None:
            return False
        self._replicas.load(replica, event.models)
        return True

    def hold(self, flight: Flight, takers: Takers, now_s: float) -> Reject | tuple[Action, ...]:
        """Hold a request that no replica takes now, and ask for its model; or refuse it."""
        request = flight.request
        if not self.can(flight):
            return Reject(request.id, "no_replica", takers.retry_after_s(now_s))
        failed = self._failed.get(request.model)
        if failed is not None and now_s < failed[0]:
            return Reject(request.id, "load_failed", failed[0] - now_s, failed[1])
        waiting = self._waiting.get(request.model)
        if waiting is not None and len(waiting) >= self._config.queue_max:
            detail = f"{len(waiting)} requests wait for the model already (loads.queue_max)"
            return Reject(request.id, "queue_full", _RETRY_S, detail)
        expires_s = request.arrived_s + self._config.wait_max_s
        self._sequence += 1
        heapq.heappush(self._expiries, (expires_s, self._sequence, flight))
        self.total += 1
        flight.held_s = now_s
        if waiting is not None:
            waiting[request.id] = flight
            return (Hold(request.id),)
        self._waiting[request.model] = {request.id: flight}
        return Hold(request.id), Load(request.model)

    def remove(self, flight: Flight, now_s: float) -> None:
        """The request is held so no longer; nothing, where it was not. Its targets count anew."""
        if not self._waits(flight):
            return
        model = flight.request.model
        waiting = self._waiting[model]
        del waiting[flight.request.id]
        self.total -= 1
        if not waiting:
            del self._waiting[model]
        waited_s = max(0.0, now_s - flight.held_s)
        flight.deadline_s += waited_s
        flight.expires_s += waited_s
        if len(self._expiries) > 2 * self.total + _EXPIRIES_SPARE:
            # Many have left before their time: no more is kept of them than of those that wait.
            self._expiries = [each for each in self._expiries if self._waits(each[2])]
            heapq.heapify(self._expiries)

    @property
    def due_s(self) -> float:
        """When the next one has waited too long; inf: none waits."""
        expiries = self._expiries
        while expiries and not self._waits(expiries[0][2]):
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else math.inf

    def ready(self, now_s: float) -> Iterator[tuple[Flight, Reject | None]]:
        """Those that are held no longer: to be placed anew, or refused."""
        for model in list(self._waiting):
            for flight in list(self._waiting.get(model, {}).values()):
                if self._waits(flight):
                    refusal = self._refusal(flight, now_s)
                    if refusal is True:
                        if not flight.route.partial:
                            break  # the others wait for the very same replicas
                        continue
                    self.remove(flight, now_s)
                    yield flight, refusal
        while self.due_s <= now_s:
            flight = self._expiries[0][2]
            self.remove(flight, now_s)
            waited_s = now_s - flight.request.arrived_s
            detail = f"it has waited {waited_s:.0f} s for its model to be loaded (loads.wait_max_s)"
            yield flight, Reject(flight.request.id, "deadline", _RETRY_S, detail)

    def _refusal(self, flight: Flight, now_s: float) -> Reject | Literal[True] | None:
        """What becomes of one that is held: None: place it; True: it goes on waiting."""
        request = flight.request
        found = self._replicas.find(request)
        if found is None:
            return Reject(request.id, "no_replica")
        takers = found[1]
        if takers.closed.loads or takers.half_open:
            self._failed.pop(request.model, None)
            return None
        failed = self._failed.get(request.model)
        if failed is not None and now_s < failed[0]:
            return Reject(request.id, "load_failed", failed[0] - now_s, failed[1])
        if not _loads(takers, request.model):
            return Reject(request.id, "no_replica", takers.retry_after_s(now_s))
        return True

    def _waits(self, flight: Flight) -> bool:
        waiting = self._waiting.get(flight.request.model)
        return waiting is not None and waiting.get(flight.request.id) is flight


def _loads(takers: Takers, model: str) -> bool:
    """One of them would load the model: it has it not, or is down."""
    return any(r.down_reason is not None or model not in r.serves for r in takers.loadable)
