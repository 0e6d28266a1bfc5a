"""GatewayWatch: a Mileage gateway's admin plane, read while it is watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import msgspec

from mileage.core.errors import EngineError
from mileage.doctor.collect.facts_document import FactsDocument
from mileage.doctor.collect.gateway_metrics import gateway_facts
from mileage.doctor.collect.gateway_setup import GatewaySetup, gateway_setup
from mileage.doctor.collect.likeness_facts import likeness_facts
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.page_window import PageAt, PageWindow
from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page
from mileage.measure.prompt_likeness import Likeness
from mileage.wire.fetch import Fetch, fetch

__all__ = ["GatewayWatch"]

_PERIOD_S: Final = 1.0
_TIMEOUT_S: Final = 3.0
_PAGES_MAX: Final = 4_000


class GatewayWatch:
    """Reads /metrics once a second from `start` to `stop`. What cannot be had is in `missing`."""

    def __init__(
        self, url: str, token: str | None, *, ask: Fetch = fetch, period_s: float = _PERIOD_S
    ) -> None:
        """`url`: the admin plane's, without a path."""
        self._url, self._period_s = url.rstrip("/"), period_s
        self._headers = () if token is None else (("authorization", f"Bearer {token}"),)
        self._ask = ask
        self._pages: list[PageAt] = []
        self._setup = GatewaySetup()
        self._task: asyncio.Task[None] | None = None
        self.missing: dict[str, str] = {}

    @property
    def engine_urls(self) -> list[str]:
        """Addresses of the engines behind it that are servers of their own; after `start`."""
        return list(self._setup.engine_urls)

    async def start(self) -> None:
        """Ask what the gateway serves, then read its page again and again."""
        status, config = await self._get("/api/v1/status"), await self._get("/api/v1/config")
        self._setup = gateway_setup(status, config)
        await self._look()
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> FactsDocument:
        """Read it once more; all that it told."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._look()
        likeness = await self._likeness()
        measured = gateway_facts(PageWindow(self._pages), self._setup.slots)
        return overlay(measured, self._setup.document, likeness_facts(likeness))

    async def _likeness(self) -> Likeness | None:
        body = await self._get("/api/v1/likeness")
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=Likeness | None)
        except msgspec.MsgspecError as error:
            self.missing["gateway"] = f"{self._url}/api/v1/likeness: {error}"
            return None

    async def _go_on(self) -> None:
        while len(self._pages) < _PAGES_MAX:
            await asyncio.sleep(self._period_s)
            await self._look()

    async def _look(self) -> None:
        at_s, at_utc_s = time.monotonic(), time.time()
        body = await self._get("/metrics")
        if body is not None:
            self._pages.append(PageAt(at_s, Page(parse(body)), at_utc_s))

    async def _get(self, path: str) -> bytes | None:
        try:
            answer = await self._ask(
                f"{self._url}{path}", headers=self._headers, timeout_s=_TIMEOUT_S
            )
        except EngineError as error:
            self.missing["gateway"] = f"{self._url}: {error.message}"
            return None
        if answer.status == 404:
            return None
        if answer.status != 200:
            hint = ": the admin token is not right" if answer.status in (401, 403) else ""
            self.missing["gateway"] = f"{self._url} answered with {answer.status}{hint}"
            return None
        return answer.body
