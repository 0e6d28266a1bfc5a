"""Admin plane: dashboard, /metrics and control API as one ASGI application."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mileage.gateway.admin import exposition
from mileage.gateway.admin import metrics as admin_metrics
from mileage.gateway.admin.adapter_api import AdapterApi, adapter_families
from mileage.gateway.admin.api import ControlApi
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.context_switches import ContextSwitches
from mileage.gateway.admin.cost_api import CostApi, CostSource
from mileage.gateway.admin.cost_metrics import cost_families
from mileage.gateway.admin.events import EventStream, Hub
from mileage.gateway.admin.experiment import ExperimentStatus
from mileage.gateway.admin.experiment_api import ExperimentApi
from mileage.gateway.admin.findings import FindingsApi, GatewayWords
from mileage.gateway.admin.fleet import Fleet
from mileage.gateway.admin.governor import GovernorStatus, governor_status
from mileage.gateway.admin.memory_pieces import memory_fragmentation_ratio
from mileage.gateway.admin.model_api import ModelApi
from mileage.gateway.admin.pages import Pages
from mileage.gateway.admin.processes import ProcessSample, ProcessSampler, Role
from mileage.gateway.admin.responses import error
from mileage.gateway.admin.security import Gatekeeper, SecurityMiddleware
from mileage.gateway.admin.series import Sample, SeriesStore
from mileage.gateway.admin.status import Status, status
from mileage.measure.prompt_likeness import merged_likeness

__all__ = ["AdminApp"]

_LOG = logging.getLogger(__name__)
_PUBLIC = frozenset({"/", "/cost", "/login", "/logout", "/healthz", "/api/v1/session"})
_OFFSET_DRIFT_S = 0.75


class _Update(msgspec.Struct, frozen=True):
    """What every open dashboard gets once a second."""

    sample: Sample | None
    status: Status
    governor: GovernorStatus
    experiment: ExperimentStatus | None


class AdminApp:
    """The ASGI application, and the once-a-second tick that samples the fleet.

    `assets` are the dashboard's files by name (`index.html`, `login.html` and what they load).
    `costs` reads the ledger; None where there is none. `clock` is the monotonic clock of reports
    and observations; `wall` gives UTC seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        config: AdminConfig,
        *,
        token: str,
        assets: Mapping[str, bytes],
        costs: CostSource | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._fleet, self._clock, self._wall = fleet, clock, wall
        self._started_s = clock()
        self._utc_offset_s = 0.0
        self._drain_asked = False
        self._sampler = ProcessSampler()
        self._processes: list[ProcessSample] = []
        self._switches = ContextSwitches()
        self._rendering = asyncio.Lock()
        self.series = SeriesStore()
        self.hub = Hub(config.subscribers_max)
        self._gatekeeper = Gatekeeper(config, token)
        self._costs = CostApi(costs, clock=clock)
        self._findings = FindingsApi(self._words)
        pages, api = Pages(assets, self._gatekeeper), ControlApi(fleet, self)
        public = _PUBLIC | ({"/metrics"} if config.is_loopback or config.metrics_public else set())
        routes = [
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/api/v1/events", EventStream(self.hub), methods=["GET"]),
            *pages.routes(),
            *api.routes(),
            *ExperimentApi(fleet).routes(),
            *AdapterApi(fleet).routes(),
            *ModelApi(fleet).routes(),
            *self._costs.routes(),
            *self._findings.routes(),
        ]
        handlers = {HTTPException: _http_error, Exception: _internal_error}
        starlette = Starlette(routes=routes, exception_handlers=handlers)
        starlette.router.redirect_slashes = False
        self._app = SecurityMiddleware(
            starlette, self._gatekeeper, public=public, public_prefix="/assets/"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def run(self) -> None:
        """Tick once a second until cancelled. A failed tick is logged and the next one comes."""
        while True:
            try:
                self.tick()
                if self._findings.is_due(self._clock()):
                    page = await self._page(costs=False)  # they are read anew for each scrape
                    await asyncio.to_thread(self._findings.look, page, self._clock())
            except Exception:
                _LOG.exception("admin plane: sampling the fleet failed")
            await asyncio.sleep(1.0 - self._clock() % 1.0)

    def tick(self) -> None:
        """Sample the fleet and its processes now, and tell the open dashboards."""
        now_s = self._clock()
        roles: dict[int, Role] = {os.getpid(): "supervisor"}
        roles |= {report.pid: "worker" for report in self._fleet.reports()}
        roles |= dict.fromkeys(self._fleet.engine_pids(), "engine")
        self._processes = self._sampler.sample(roles, now_s)
        self._switches.sample(roles)
        self.series.sample(self._fleet.reports(), self._fleet.views(), now_s)
        sample = self.series.latest(self.utc_offset_s())
        desk = self._fleet.experiment_desk()
        experiment = None if desk is None else desk.status()
        update = _Update(sample, self.status(), self.governor(), experiment)
        self.hub.publish(msgspec.json.encode(update))

    def utc_offset_s(self) -> float:
        """UTC minus monotonic time in whole seconds, so that points keep their times.

        It changes only when the clocks have really come apart, as after a step of the wall clock.
        """
        offset_s = self._wall() - self._clock()
        if abs(offset_s - self._utc_offset_s) > _OFFSET_DRIFT_S:
            self._utc_offset_s = float(round(offset_s))
        return self._utc_offset_s

    def status(self) -> Status:
        """The state of the gateway now."""
        return status(
            self._fleet,
            self._processes,
            now_s=self._clock(),
            now_utc_s=self._wall(),
            started_s=self._started_s,
            subscribers=self.hub.subscribers,
            draining=self._drain_asked,
        )

    def governor(self) -> GovernorStatus:
        """What the governor does now."""
        return governor_status(self._fleet, utc_offset_s=self.utc_offset_s())

    def drain(self) -> None:
        """Ask the fleet to drain, and show it at once."""
        self._drain_asked = True
        self._fleet.drain()

    async def _metrics(self, request: Request) -> Response:
        openmetrics = exposition.wants_openmetrics(request.headers.get("accept"))
        text = await self._page(openmetrics=openmetrics)
        content_type = (
            exposition.CONTENT_TYPE_OPENMETRICS if openmetrics else exposition.CONTENT_TYPE_TEXT
        )
        return Response(text, headers={"content-type": content_type})

    async def _page(self, *, openmetrics: bool = False, costs: bool = True) -> bytes:
        # One at a time, and off the loop: many series take a while to print.
        async with self._rendering:
            now_s = self._clock()
            plane = admin_metrics.PlaneFigures(
                uptime_s=now_s - self._started_s,
                subscribers=self.hub.subscribers,
                auth_failures=self._gatekeeper.failures,
                processes=self._processes,
                cpu_s_by_role=self._sampler.cpu_s_by_role(),
                context_switches=self._switches.totals(),
                memory_fragmentation_ratio=memory_fragmentation_ratio(),
            )
            figures = await self._costs.figures() if costs else None
            families = admin_metrics.families(self._fleet, plane, now_s)
            families = [*families, *cost_families(figures), *adapter_families(self._fleet)]
            return await asyncio.to_thread(exposition.render, families, openmetrics=openmetrics)

    def _words(self) -> GatewayWords:
        likeness = [report.likeness for report in self._fleet.reports()]
        return GatewayWords(
            status=msgspec.json.encode(self.status()),
            config=msgspec.json.encode(self._fleet.config_public()),
            likeness=merged_likeness([part for part in likeness if part is not None]),
        )


def _internal_error(request: Request, exception: Exception) -> Response:
    return error(500, "The admin plane failed; see its log.", code="internal_error")


def _http_error(request: Request, exception: Exception) -> Response:
    assert isinstance(exception, HTTPException)
    if exception.status_code == 405:
        message = f"{request.method} is not possible here."
        headers = dict(exception.headers or {})
        return error(405, message, code="method_not_allowed", param="method", headers=headers)
    return error(exception.status_code, "There is nothing at this path.", code="not_found")
