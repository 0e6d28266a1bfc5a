"""A DCGM exporter's page: looked at when asked to, or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuSample
from mileage.scrape.gpu_dcgm import dcgm_samples
from mileage.wire.fetch import Fetch
from mileage.wire.url import display_url

__all__ = ["DcgmPage", "DcgmTelemetry"]

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
_STALE_S: Final = 30.0
"""How often an exporter looks, by default."""


class DcgmPage:
    """GPUs of a DCGM exporter (NVIDIA/dcgm-exporter); `gpu_ids` and `figures` as for
    `dcgm_samples`."""

    begins = False

    def __init__(
        self,
        url: str,
        gpu_ids: Sequence[str],
        *,
        fetch: Fetch,
        timeout_s: float,
        figures: Collection[str] | None = None,
    ) -> None:
        self.name = display_url(url)
        self._url, self._gpu_ids, self._figures = url, tuple(gpu_ids), figures
        self._fetch, self._timeout_s = fetch, timeout_s

    async def look(self, at_s: float) -> tuple[GpuSample, ...]:
        """One look, dated `at_s`. Raises EngineError."""
        return self.samples(await self.body(), at_s)

    async def body(self) -> bytes:
        """The page. Raises EngineError."""
        response = await self._fetch(
            self._url, timeout_s=self._timeout_s, body_bytes_max=BODY_BYTES_MAX
        )
        if not 200 <= response.status < 300:
            raise EngineError(self.name, f"answered {response.status}")
        return response.body

    def samples(self, body: bytes, at_s: float) -> tuple[GpuSample, ...]:
        """What the page tells. Raises EngineError."""
        try:
            return dcgm_samples(body, at_s=at_s, gpu_ids=self._gpu_ids, figures=self._figures)
        except ValueError as error:
            raise EngineError(self.name, str(error)) from error

    def close(self) -> None:
        """Nothing is held."""


class DcgmTelemetry:
    """Looks at the page again and again.

    All calls come from one thread: it has an event loop of its own, for the fetch alone. A page
    that is as it was before is no look: the exporter has not looked. After 30 s it counts as one.
    """

    period_min_s = 1.0
    """An exporter looks every second at most, and by default every thirty."""

    def __init__(
        self, url: str, gpu_ids: Sequence[str], *, fetch: Fetch, timeout_s: float = 2.0
    ) -> None:
        self._page = DcgmPage(url, gpu_ids, fetch=fetch, timeout_s=timeout_s)
        self._runner: asyncio.Runner | None = None
        self._last: tuple[bytes, float] | None = None

    def read(self, at_s: float) -> tuple[GpuSample, ...]:
        """One look, dated `at_s`; none while the page is the same. Raises EngineError."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        body = self._runner.run(self._page.body())
        last = self._last
        if last is not None and last[0] == body and at_s - last[1] < _STALE_S:
            return ()
        self._last = body, at_s
        return self._page.samples(body, at_s)

    def close(self) -> None:
        """No read follows."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
