"""EngineWatch: one engine's own pages over HTTP, read again and again while it is watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.triton_stats import stats_models
from mileage.doctor.redact import Redactor
from mileage.measure.exposition import parse
from mileage.measure.iteration_records import iteration_records
from mileage.wire.fetch import Fetch, FetchError, FetchResponse, fetch
from mileage.wire.url import display_url, origin

__all__ = ["EngineWatch", "watch_engine"]

PERIOD_S: Final = 1.0
TIMEOUT_S: Final = 5.0
"""trtllm-serve holds back its JSON for up to 2 s while it is idle."""
PAGES_MAX: Final = 4_000
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
PAGES_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all pages together: an engine with large ones is read less often, not less long."""
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
MODELS_MAX: Final = 50
"""Of a Triton repository."""

_METRICS: Final = ("/prometheus/metrics", "/metrics")
_STATS: Final = "/v2/models/stats"
_PERF: Final = "/perf_metrics"
"""Times of the requests since it was last asked: read at the start so that what is read at the end
is of the window."""
_SLOTS: Final = "/slots"
"""Has the prompts of what runs: only its figures are kept."""
_ONCE: Final = (
    "/version",
    "/v1/models",
    "/server_info",
    "/get_server_info",
    "/props",
    _SLOTS,
    "/info",
    "/v2",
    _PERF,
)
_TRITON_METRICS_PORT: Final = 8002
Sleep = Callable[[float], Awaitable[None]]


class EngineWatch:
    """Reads an engine from `start` to `stop`; what cannot be had is in the record's `missing`.

    `url` is the engine's base, with or without a path of its metrics page. `authorization` is the
    value of that header. Times come from `clock` (monotonic) and `wall` (Unix), in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        authorization: str | None = None,
        ask: Fetch = fetch,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Raises ConfigError for what is no http URL."""
        try:
            origin(url)
        except ValueError as error:
            raise ConfigError("URL", display_url(url), str(error)) from error
        self._base, page = _parts_of(url)
        self._headers = [] if authorization is None else [("authorization", authorization)]
        self._metrics = [page] if page is not None else [self._base + path for path in _METRICS]
        self._ask, self._period_s, self._sleep = ask, period_s, sleep
        self._clock, self._wall = clock, wall
        self._pages: list[RecordedPage] = []
        self._bytes = 0
        self._answers: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._source: str | None = None
        self._redactor = Redactor()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask for all pages once, then for the metrics again and again.

        Raises EngineError where nothing answers at the URL.
        """
        for url in self._metrics:
            if self._source is None and await self._look_at(url):
                self._source = url
        await asyncio.gather(*(self._answer(path) for path in _ONCE))
        if "/v2" in self._answers:
            await self._triton()
        if not self._answers and not self._pages:
            reasons = [why for why in self._missing.values() if not why.startswith("answered")]
            why = (reasons or list(self._missing.values()))[0]
            raise EngineError(display_url(self._base), f"no page of an engine: {why}")
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> EngineRecord:
        """Read the metrics once more; all that was answered."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._look()
        if _PERF in self._answers:
            await self._answer(_PERF)
        return self.record()

    def record(self) -> EngineRecord:
        """All that was answered so far."""
        return EngineRecord(
            url=display_url(self._base),
            pages=tuple(self._pages),
            answers=dict(self._answers),
            missing=dict(self._missing),
        )

    async def _go_on(self) -> None:
        while True:
            size = len(self._pages[-1].text) if self._pages else 0
            await self._sleep(max(self._period_s, self._period_s * size / 1_000_000))
            await self._look()

    async def _look(self) -> None:
        if self._source is not None:
            await self._look_at(self._source)

    async def _look_at(self, url: str) -> bool:
        """Read a metrics page; False where there is none, or it is empty."""
        path = url.removeprefix(self._base)
        asked_s, asked_utc_s = self._clock(), self._wall()  # a late answer must not pass for fresh
        response = await self._get(url, path, PAGE_BYTES_MAX)
        if response is None or not response.body.strip():
            return False
        if len(self._pages) >= PAGES_MAX or self._bytes > PAGES_BYTES_MAX:
            self._thin()
        if self._source is None and not _has_figures(response.body):
            self._missing[path] = "no metrics"  # a server that answers any path with its front page
            return False
        text = response.body.decode("utf-8", "replace")
        self._bytes += len(text)
        self._pages.append(RecordedPage(at_s=asked_s, at_utc_s=asked_utc_s, path=path, text=text))
        return True

    def _thin(self) -> None:
        """Every other page is enough; the first one begins the window."""
        self._pages = self._pages[:1] + self._pages[1::2]
        self._bytes = sum(len(page.text) for page in self._pages)

    async def _triton(self) -> None:
        """Its metrics, on a port of their own, else its statistics; its models' settings."""
        await self._answer(_STATS)
        names = stats_models(self._answers.pop(_STATS, "").encode())
        for url in (_beside(self._base), self._base + _STATS):
            if self._source is None and await self._look_at(url):
                self._source = url
        for name in names[:MODELS_MAX]:
            await self._answer(f"/v2/models/{quote(name, safe='')}/config")

    async def _answer(self, path: str) -> None:
        """Ask once, and keep a JSON answer without secrets and without what people wrote."""
        response = await self._get(self._base + path, path, ANSWER_BYTES_MAX)
        if response is None:
            return
        try:
            answer = msgspec.json.decode(response.body)
            kept = _figures(answer) if path == _SLOTS else self._redactor.document(answer)
            self._answers[path] = msgspec.json.encode(kept).decode()
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._missing[path] = "no JSON"

    async def _get(self, url: str, path: str, bytes_max: int) -> FetchResponse | None:
        """The answer where it is a success; else why not is noted."""
        headers = self._headers if origin(url) == origin(self._base) else []
        try:
            response = await self._ask(
                url, headers=headers, timeout_s=TIMEOUT_S, body_bytes_max=bytes_max
            )
        except FetchError as error:
            self._missing[path] = error.message
            return None
        if not 200 <= response.status < 300:
            self._missing[path] = f"answered {response.status}"
            return None
        self._missing.pop(path, None)
        return response


async def watch_engine(
    url: str,
    *,
    window_s: float,
    authorization: str | None = None,
    ask: Fetch = fetch,
    period_s: float = PERIOD_S,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Sleep = asyncio.sleep,
) -> EngineRecord:
    """Watch one engine for `window_s`. `engine_facts` makes facts of the record.

    Raises ConfigError for what is no http URL, and EngineError where nothing answers there.
    """
    watch = EngineWatch(
        url,
        authorization=authorization,
        ask=ask,
        period_s=period_s,
        clock=clock,
        wall=wall,
        sleep=sleep,
    )
    await watch.start()
    await sleep(window_s)
    return await watch.stop()


def _parts_of(url: str) -> tuple[str, str | None]:
    """Base of the engine, and its metrics page where the URL names one."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    page = None
    for suffix in _METRICS:
        if path.endswith(suffix):
            path, page = path.removesuffix(suffix), url
            break
    path = path.removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), page


def _has_figures(body: bytes) -> bool:
    return iteration_records(body) is not None or bool(parse(body, samples_max=1).samples)


def _beside(base: str) -> str:
    """Where Triton has its metrics unless it is told otherwise."""
    scheme, host, _ = origin(base)
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{_TRITON_METRICS_PORT}/metrics"


def _figures(answer: Any) -> list[dict[str, Any]]:
    """Numbers and flags of each slot."""
    slots = answer if isinstance(answer, list) else []
    return [
        {key: value for key, value in slot.items() if isinstance(value, int | float)}
        for slot in slots
        if isinstance(slot, dict)
    ]
