"""LoadTelemetry: requests and latency at an engine or a Mileage gateway, from its metrics page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from mileage.core.errors import EngineError
from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page, possible
from mileage.measure.serving_host import LoadMoment
from mileage.scrape.engine_means import EngineTotals, means_between, totals_of
from mileage.scrape.reading import read
from mileage.wire.fetch import Fetch
from mileage.wire.url import display_url

__all__ = ["LoadTelemetry", "load_of"]

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
_RUNNING: Final = ("mileage_replica_running", "mileage_requests_in_flight")
_WAITING: Final = ("mileage_replica_waiting", "mileage_queue_requests")
_NAMES: Final = frozenset((*_RUNNING, *_WAITING))


class LoadTelemetry:
    """Reads the first of the pages that tells of requests. All calls come from one thread."""

    period_min_s = 0.5
    """Pages are long, and engines bring them up to date about once a second."""

    def __init__(self, urls: Sequence[str], *, fetch: Fetch, timeout_s: float = 2.0) -> None:
        self._urls, self._fetch, self._timeout_s = list(urls), fetch, timeout_s
        self._runner: asyncio.Runner | None = None
        self._totals: EngineTotals | None = None
        self.url: str | None = None
        """The page that is read; None before one was found."""

    def read(self, at_s: float) -> tuple[LoadMoment, ...]:
        """One look, dated `at_s`. Raises EngineError where no page tells anything."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        problem: EngineError | None = None
        for url in self._urls if self.url is None else [self.url]:
            try:
                body = self._runner.run(self._page(url))
                moment, totals = load_of(body, at_s=at_s, before=self._totals)
            except EngineError as error:
                problem = problem or error
                continue
            if moment.has_work is None and not totals.families:
                message = "has no figure of requests"
                problem = problem or EngineError(display_url(url), message)
                continue
            self.url, self._totals = url, totals
            return (moment,)
        raise problem or EngineError("load", "no page of metrics is known")

    def close(self) -> None:
        """No read follows."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    async def _page(self, url: str) -> bytes:
        response = await self._fetch(url, timeout_s=self._timeout_s, body_bytes_max=BODY_BYTES_MAX)
        if not 200 <= response.status < 300:
            raise EngineError(display_url(url), f"answered {response.status}")
        return response.body


def load_of(
    body: bytes, *, at_s: float, before: EngineTotals | None
) -> tuple[LoadMoment, EngineTotals]:
    """What a page tells of requests; the mean gap between tokens is since the page `before`."""
    totals = totals_of(body)
    gap = None if before is None else means_between(before, totals).get("itl_s")
    view = read("", body, "", at_s).view
    running, waiting = view.running, view.waiting
    if running is None and waiting is None:
        page = Page(parse(body, _NAMES))
        running = _first(page, _RUNNING)
        waits = [n for name in _WAITING if (n := _first(page, (name,))) is not None]
        waiting = sum(waits) if waits else None
    moment = LoadMoment(
        at_s=at_s, running=running, waiting=waiting, itl_s=None if gap is None else gap.mean
    )
    return moment, totals


def _first(page: Page, names: Sequence[str]) -> int | None:
    """The sum over the series of the first name that is there, and known."""
    for name in names:
        values = [possible(sample.value) for sample in page.samples(name)]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            return round(sum(known))
    return None
