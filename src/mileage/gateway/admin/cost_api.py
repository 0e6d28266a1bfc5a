"""Control API of costs: where the money went in a stretch of time, by account and over time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.cost_metrics import CostFigures
from mileage.gateway.admin.responses import error, json
from mileage.ledger.cost_view import CostView

__all__ = ["CostApi", "CostSource"]

KEPT_S = 10.0
"""A view that was made is shown for so long: many open pages ask for the same."""
KEPT_RATIO = 20.0
"""And for so many times the time that it took: a large ledger costs a twentieth of a core."""
KEPT_MAX = 32
FIGURES_KEPT_S = 30.0
"""Metrics are made of roll-ups of minutes: newer ones would say the same."""
TEXT_MAX = 100
_LOG = logging.getLogger(__name__)


class CostSource(Protocol):
    """Reads costs out of the ledger."""

    def read(self, window: str, by: str) -> CostView:
        """The costs of `window`, as `mileage cost --since` takes it, by account.

        Reads files, and may take a while: for a thread. Raises ConfigError with the key `window`
        or `by` for what is none of those, and LedgerError where the ledger cannot be read.
        """
        ...

    def figures(self) -> CostFigures:
        """What metrics tell; the same is said of it."""
        ...


class CostApi:
    """The route /api/v1/cost, who may call it is decided before; and what metrics tell of costs.

    One of all is made at a time, in a thread: this process checks engines and looks after workers,
    whoever asks how often for whatever.
    """

    def __init__(
        self, source: CostSource | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source, self._clock = source, clock
        self._making = asyncio.Lock()
        self._figures: CostFigures | None = None
        self._figures_at_s = float("-inf")
        self._kept: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()

    def routes(self) -> list[Route]:
        """The route, for the application's router."""
        return [Route("/api/v1/cost", self._cost, methods=["GET"])]

    async def figures(self) -> CostFigures | None:
        """What metrics tell; None where nothing can be read."""
        source = self._source
        async with self._making:
            if source is not None and self._clock() - self._figures_at_s > FIGURES_KEPT_S:
                try:
                    self._figures = await asyncio.to_thread(source.figures)
                except MileageError as failure:
                    _LOG.warning("admin plane: no metrics of costs: %s", failure)
                    self._figures = None
                self._figures_at_s = self._clock()
        return self._figures

    async def _cost(self, request: Request) -> Response:
        if self._source is None:
            return error(404, "This gateway keeps no ledger: there are no costs.", code="no_ledger")
        key = request.query_params.get("window", "24h"), request.query_params.get("by", "tenant")
        for name, value in zip(("window", "by"), key, strict=True):
            if len(value) > TEXT_MAX:
                message = f"{name} is longer than {TEXT_MAX} characters."
                return error(400, message, code="invalid_value", param=name)
        try:
            async with self._making:
                body = self._fresh(key)
                if body is None:
                    began_s = self._clock()
                    view = await asyncio.to_thread(self._source.read, *key)
                    body = await asyncio.to_thread(msgspec.json.encode, view)
                    self._keep(key, body, self._clock() - began_s)
        except ConfigError as failure:
            return error(400, str(failure), code="invalid_value", param=failure.key)
        except MileageError as failure:
            _LOG.warning("admin plane: no costs: %s", failure)
            return error(503, str(failure), code="not_now")
        return json(msgspec.Raw(body))

    def _fresh(self, key: tuple[str, str]) -> bytes | None:
        kept = self._kept.get(key)
        return None if kept is None or self._clock() > kept[0] else kept[1]

    def _keep(self, key: tuple[str, str], body: bytes, took_s: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = (self._clock() + max(KEPT_S, KEPT_RATIO * took_s), body)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
