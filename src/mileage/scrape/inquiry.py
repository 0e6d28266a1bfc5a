"""Inquiry: the questions put to one replica over HTTP: is it well, what does it serve, how busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mileage.core.errors import EngineError
from mileage.scrape.model_list import ModelList, parse_models
from mileage.scrape.reading import Reading, read
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import Fetch, FetchResponse
from mileage.wire.url import display_url, origin

__all__ = ["Inquiry", "NoMetricsError", "NotReadyError"]

BODY_BYTES_MAX = 8 * 1024 * 1024
_ABSENT = frozenset({404, 405, 501})
_FORBIDDEN = frozenset({401, 403})
_NOT_READY = frozenset({503})
"""While a model loads: llama.cpp, SGLang, trtllm-serve. (Triton's 400 means other things too.)"""


class NoMetricsError(EngineError):
    """The replica answers, but has no metrics page that we can use: ask less often."""


class NotReadyError(EngineError):
    """The replica answers, and says that it cannot serve now."""


class Inquiry:
    """Asks one replica; remembers which of several URLs it has. All methods raise EngineError."""

    def __init__(self, target: PollTarget, fetch: Fetch) -> None:
        self._target, self._fetch = target, fetch
        self._health_index = self._metrics_index = 0

    async def models(self, known: ModelList | None) -> tuple[ModelList, str | None]:
        """The models of a replica that is well, and why its list could not be had.

        Where health and list are two pages, a replica that is well and has `known` models keeps
        them while the list fails. Beside models that are configured only adapters are taken from
        the list, where it loads any.
        """
        target = self._target
        self._health_index, response = await self._first(
            target.health_urls, self._health_index, target.health_timeout_s
        )
        url = target.health_urls[self._health_index]
        said = ModelList(target.models) if target.models else None
        if said is not None and response.status in _ABSENT:
            # It answers, and what it has no list of is configured.
            return said, None
        _require_ok(url, response)
        if said is not None and not target.lora_slots:
            return said, None
        try:
            if url != target.models_url:
                url = target.models_url
                response = await self._get(url, target.health_timeout_s)
                _require_ok(url, response)
            listed = parse_models(display_url(url), response.body)
            return listed if said is None else _with_adapters(said, listed), None
        except EngineError as error:
            known = known or said
            if known is None:
                raise
            return known, str(error)

    async def metrics(self, clock: Callable[[], float]) -> Reading:
        """The first metrics page that has figures, dated before it was asked for.

        Raises NoMetricsError where no page is there, allowed and of a known kind.
        """
        target = self._target
        problem = ""
        for index in _from(self._metrics_index, target.metrics_urls):
            url = target.metrics_urls[index]
            asked_s = clock()  # a late answer must not pass for a fresh one
            response = await self._get(url, target.scrape_timeout_s)
            if response.status in _ABSENT | _FORBIDDEN:
                problem = problem or f"{display_url(url)} answered {response.status}"
                continue
            _require_ok(url, response)
            reading = read(target.kind, response.body, target.name, asked_s)
            if reading.truncated:
                raise EngineError(display_url(url), "no metrics: too many series or bad lines")
            if reading.figures or reading.kind == target.kind:
                self._metrics_index = index
                return reading
            looks = f"; it looks like {reading.kind}" if reading.kind else ""
            problem = f"{display_url(url)} has no known series of kind {target.kind}{looks}"
        raise NoMetricsError(target.name, problem)

    async def version(self) -> str | None:
        """The engine's version; None where it does not tell one."""
        target = self._target
        if not target.version_urls:
            return None
        _, response = await self._first(target.version_urls, 0, target.scrape_timeout_s)
        try:
            fields = msgspec.json.decode(response.body, type=dict[str, msgspec.Raw])
            version = msgspec.json.decode(fields[target.version_field], type=str)
        except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
            return None
        return version if version.isprintable() and 0 < len(version) <= 100 else None

    def forget(self) -> None:
        """It restarted, perhaps as another version: find its pages anew."""
        self._health_index = self._metrics_index = 0

    async def _first(
        self, urls: Sequence[str], index: int, timeout_s: float
    ) -> tuple[int, FetchResponse]:
        """Index and answer of the first URL that is there, else of the last one tried."""
        order = _from(index, urls)
        for index in order:
            response = await self._get(urls[index], timeout_s)
            if response.status not in _ABSENT:
                break
        return index, response

    async def _get(self, url: str, timeout_s: float) -> FetchResponse:
        secret = self._target.authorization
        own = secret is not None and origin(url) == origin(self._target.url)
        return await self._fetch(
            url,
            headers=[("authorization", secret)] if secret is not None and own else [],
            timeout_s=timeout_s,
            body_bytes_max=BODY_BYTES_MAX,
        )


def _with_adapters(said: ModelList, listed: ModelList) -> ModelList:
    """The models that it is said to serve, and the adapters that it tells of."""
    adapters = tuple(each for each in listed.adapters if each.model not in said.names)
    return ModelList((*said.names, *(each.model for each in adapters)), adapters)


def _from(index: int, urls: Sequence[str]) -> list[int]:
    """The indexes of all URLs, this one first."""
    return [index, *(other for other in range(len(urls)) if other != index)]


def _require_ok(url: str, response: FetchResponse) -> None:
    """Raise EngineError, NotReadyError for a 503, with the head of the answer, unless it is a
    success."""
    status = response.status
    if 200 <= status < 300:
        return
    text = response.body[:150].decode("latin-1")
    text = "".join(char if " " <= char <= "~" else " " for char in text).strip()
    hint = " (is its API key right?)" if status in _FORBIDDEN else ""
    error = NotReadyError if status in _NOT_READY else EngineError
    raise error(display_url(url), f"answered {status}{hint}{': ' if text else ''}{text}")
