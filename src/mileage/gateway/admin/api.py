"""Control API: the gateway's state as JSON, and the few things one may change."""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.governor import GovernorStatus
from mileage.gateway.admin.pauses import pause_list
from mileage.gateway.admin.responses import error, json
from mileage.gateway.admin.series import LEVELS, SeriesStore
from mileage.gateway.admin.status import Status
from mileage.gateway.admin.trial import Trial, TrialRequest, dotted
from mileage.measure.prompt_likeness import merged_likeness

__all__ = ["ControlApi", "Plane"]

_LOG = logging.getLogger(__name__)
_BODY_MAX = 65_536
_WINDOW_MAX_S = max(step_s * points for step_s, points in LEVELS)


class Plane(Protocol):
    """What the API needs of the application around it."""

    series: SeriesStore

    def status(self) -> Status:
        """The state of the gateway now."""
        ...

    def governor(self) -> GovernorStatus:
        """What the governor does now."""
        ...

    def utc_offset_s(self) -> float:
        """UTC minus monotonic time."""
        ...

    def drain(self) -> None:
        """Ask the fleet to drain."""
        ...


class ControlApi:
    """Routes below /api/v1; who may call them is decided before."""

    def __init__(self, fleet: Fleet, plane: Plane) -> None:
        self._fleet, self._plane = fleet, plane

    def routes(self) -> list[Route]:
        """The routes, for the application's router."""
        get, post = ["GET"], ["POST"]
        return [
            Route("/api/v1/status", self._status, methods=get),
            Route("/api/v1/governor", self._governor, methods=get),
            Route("/api/v1/config", self._config, methods=get),
            Route("/api/v1/config/reload", self._reload, methods=post),
            Route("/api/v1/config/trial", self._trial, methods=post),
            Route("/api/v1/replicas", self._replicas, methods=get),
            Route("/api/v1/series", self._series, methods=get),
            Route("/api/v1/pauses", self._pauses, methods=get),
            Route("/api/v1/likeness", self._likeness, methods=get),
            Route("/api/v1/drain", self._drain, methods=post),
            # A name may hold a slash, so it is all between the two fixed parts.
            Route("/api/v1/replicas/{name:path}/enable", self._enable, methods=post),
            Route("/api/v1/replicas/{name:path}/disable", self._disable, methods=post),
        ]

    async def _status(self, request: Request) -> Response:
        return json(self._plane.status())

    async def _governor(self, request: Request) -> Response:
        return json(self._plane.governor())

    async def _pauses(self, request: Request) -> Response:
        return json(pause_list(self._fleet.reports()))

    async def _likeness(self, request: Request) -> Response:
        told = [report.likeness for report in self._fleet.reports()]
        return json(merged_likeness([part for part in told if part is not None]))

    async def _config(self, request: Request) -> Response:
        return json(self._fleet.config_public())

    async def _reload(self, request: Request) -> Response:
        try:
            return json(await self._fleet.reload())
        except ConfigError as failure:
            return error(422, str(failure), code="invalid_config", param=failure.key)
        except MileageError as failure:
            return error(503, str(failure), code="not_now")

    async def _trial(self, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _BODY_MAX:
                return error(413, f"The body is longer than {_BODY_MAX} bytes.", code="too_large")
        try:
            asked = msgspec.json.decode(bytes(body), type=TrialRequest)
            trial = Trial(settings=dotted(asked.set), for_s=asked.for_s)
            return json(await self._fleet.try_settings(trial))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
            return error(400, f"The body is no trial: {failure}.", code="invalid_body")
        except ConfigError as failure:
            return error(422, str(failure), code="invalid_config", param=failure.key)
        except MileageError as failure:
            return error(503, str(failure), code="not_now")

    async def _replicas(self, request: Request) -> Response:
        return json({"replicas": self._plane.status().replicas})

    async def _series(self, request: Request) -> Response:
        query = request.query_params
        window_s = _whole_seconds(query.get("window_s", "300"))
        if window_s is None:
            message = f"window_s must be a whole number of seconds, 1..{_WINDOW_MAX_S}."
            return error(400, message, code="invalid_value", param="window_s")
        step_s = _whole_seconds(query["step_s"]) if "step_s" in query else None
        steps = [step for step, _ in LEVELS]
        if "step_s" in query and step_s not in steps:
            message = f"step_s must be one of {', '.join(map(str, steps))}."
            return error(400, message, code="invalid_value", param="step_s")
        return json(self._plane.series.read(window_s, self._plane.utc_offset_s(), step_s=step_s))

    async def _drain(self, request: Request) -> Response:
        _LOG.warning("admin plane: drain asked for")
        self._plane.drain()
        return json({"draining": True}, 202)

    async def _enable(self, request: Request) -> Response:
        return self._set(request.path_params["name"], enabled=True)

    async def _disable(self, request: Request) -> Response:
        return self._set(request.path_params["name"], enabled=False)

    def _set(self, name: str, *, enabled: bool) -> Response:
        if not self._fleet.set_replica(name, enabled):
            return error(404, "No replica has this name.", code="replica_not_found", param="name")
        _LOG.warning("admin plane: replica %r %s", name, "enabled" if enabled else "disabled")
        return json({"name": name, "enabled": enabled})


def _whole_seconds(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        return None
    seconds = int(text)
    return seconds if 1 <= seconds <= _WINDOW_MAX_S else None
