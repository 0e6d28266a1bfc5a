"""Control API of models that sleep: how each stands; sleep, wake."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.core.errors import MileageError
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.responses import error, json
from mileage.gateway.model_desk import ModelDesk
from mileage.gateway.model_seat import ModelStatus

__all__ = ["ModelApi"]

_log = logging.getLogger(__name__)


class ModelApi:
    """Routes below /api/v1/models; who may call them is decided before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def routes(self) -> list[Route]:
        """The routes, for the application's router."""
        return [
            Route("/api/v1/models", self._models, methods=["GET"]),
            # A name may hold a slash, so it is all between the two fixed parts.
            Route("/api/v1/models/{name:path}/sleep", self._sleep, methods=["POST"]),
            Route("/api/v1/models/{name:path}/wake", self._wake, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Response:
        desk = self._fleet.model_desk()
        return json({"models": [] if desk is None else desk.statuses()})

    async def _sleep(self, request: Request) -> Response:
        return self._do(request.path_params["name"], ModelDesk.sleep, "sleep")

    async def _wake(self, request: Request) -> Response:
        return self._do(request.path_params["name"], ModelDesk.wake, "wake")

    def _do(self, name: str, what: Callable[[ModelDesk, str], ModelStatus], verb: str) -> Response:
        desk = self._fleet.model_desk()
        if desk is None:
            return error(503, "The gateway is still starting.", code="not_now")
        _log.warning("admin plane: %s %r asked for", verb, name)
        try:
            return json(what(desk, name), 202)
        except KeyError:
            message = "No model that can sleep has this name; GET /api/v1/models lists them."
            return error(404, message, code="model_not_found", param="name")
        except MileageError as failure:
            return error(409, f"{failure}.", code="not_now")
