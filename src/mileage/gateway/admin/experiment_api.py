"""Control API of the experiment: how it stands; start, stop, promote."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.control.experiment_config import ExperimentConfig
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.experiment import ExperimentDesk, ExperimentStatus
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.responses import error, json

__all__ = ["ExperimentApi"]

_BODY_MAX = 65_536
_decode = msgspec.json.Decoder(ExperimentConfig).decode


class ExperimentApi:
    """Routes below /api/v1/experiment; who may call them is decided before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def routes(self) -> list[Route]:
        """The routes, for the application's router."""
        post = ["POST"]
        return [
            Route("/api/v1/experiment", self._status, methods=["GET"]),
            Route("/api/v1/experiment/start", self._start, methods=post),
            Route("/api/v1/experiment/stop", self._stop, methods=post),
            Route("/api/v1/experiment/promote", self._promote, methods=post),
        ]

    async def _status(self, request: Request) -> Response:
        desk = self._fleet.experiment_desk()
        return json(ExperimentStatus(state="none") if desk is None else desk.status())

    async def _start(self, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _BODY_MAX:
                return error(413, f"The body is longer than {_BODY_MAX} bytes.", code="too_large")
        try:
            config = _decode(bytes(body)) if body.strip() else None
            if config is not None:
                self._check_replicas(config)
        except msgspec.DecodeError as failure:
            return error(400, f"The body is no experiment: {failure}.", code="invalid_body")
        except ConfigError as failure:
            return error(422, str(failure), code="invalid_config", param=failure.key)
        return self._do(lambda desk: desk.start(config))

    async def _stop(self, request: Request) -> Response:
        return self._do(ExperimentDesk.stop)

    async def _promote(self, request: Request) -> Response:
        return self._do(ExperimentDesk.promote)

    def _check_replicas(self, config: ExperimentConfig) -> None:
        known = [each.name for each in self._fleet.replica_health()]
        config.check_replicas(known)

    def _do(self, what: Callable[[ExperimentDesk], ExperimentStatus]) -> Response:
        desk = self._fleet.experiment_desk()
        if desk is None:
            return error(503, "The gateway is still starting.", code="not_now")
        try:
            return json(what(desk))
        except ConfigError as failure:
            return error(422, str(failure), code="invalid_config", param=failure.key)
        except MileageError as failure:
            return error(409, f"{failure}.", code="no_experiment")
