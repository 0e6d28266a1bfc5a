"""Control API of LoRA adapters: how they stand; load, unload, pin, unpin."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.responses import error, json
from mileage.measure.metrics import FamilySnapshot

__all__ = ["AdapterApi", "adapter_families"]


class AdapterApi:
    """Routes below /api/v1/adapters; who may call them is decided before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def routes(self) -> list[Route]:
        """The routes, for the application's router."""
        post = ["POST"]
        return [
            Route("/api/v1/adapters", self._states, methods=["GET"]),
            # A name may hold a slash, so it is all between the two fixed parts.
            Route("/api/v1/adapters/{name:path}/load", self._load, methods=post),
            Route("/api/v1/adapters/{name:path}/unload", self._unload, methods=post),
            Route("/api/v1/adapters/{name:path}/pin", self._pin, methods=post),
            Route("/api/v1/adapters/{name:path}/unpin", self._unpin, methods=post),
        ]

    async def _states(self, request: Request) -> Response:
        return json(self._fleet.adapter_states())

    async def _load(self, request: Request) -> Response:
        return self._do(request, AdapterDesk.ask_load)

    async def _unload(self, request: Request) -> Response:
        return self._do(request, AdapterDesk.ask_unload)

    async def _pin(self, request: Request) -> Response:
        return self._do(request, lambda desk, name: desk.pin(name, True))

    async def _unpin(self, request: Request) -> Response:
        return self._do(request, lambda desk, name: desk.pin(name, False))

    def _do(self, request: Request, what: Callable[[AdapterDesk, str], None]) -> Response:
        desk, name = self._fleet.adapter_desk(), request.path_params["name"]
        if desk is None:
            return error(503, "No adapters can be loaded here.", code="not_now")
        try:
            what(desk, name)
        except KeyError:
            return error(404, f"There is no adapter {name!r} in [[adapters]].", code="not_found")
        return json(self._fleet.adapter_states(), 202)


def adapter_families(fleet: Fleet) -> list[FamilySnapshot]:
    """The metric families of adapters; none where there are no adapters."""
    desk, states = fleet.adapter_desk(), fleet.adapter_states()
    if desk is None or not states.adapters:
        return []
    desk.metrics.take(states)
    return desk.metrics.snapshot()
