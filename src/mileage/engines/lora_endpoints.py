"""Loads adapters into vLLM and SGLang while they run, and looks whether they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from mileage.core.adapter_loader import AdapterFile
from mileage.core.errors import EngineError
from mileage.wire.fetch import FetchResponse

__all__ = ["LORA_ENDPOINTS", "LoraEndpoints", "Post"]

_UNLOAD_S = 30.0
_LIST_S = 10.0
_MESSAGE_CHARS_MAX = 500


class _Paths(NamedTuple):
    load: str
    unload: str
    hint: str
    """What the engine needs to have these paths."""
    load_first: bool
    """It takes one more than its slots for a moment: nothing goes for what does not come."""


LORA_ENDPOINTS: Final[Mapping[str, _Paths]] = {
    "vllm": _Paths(
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "vLLM needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
        load_first=True,
    ),
    "sglang": _Paths(
        "/load_lora_adapter",
        "/unload_lora_adapter",
        "SGLang needs --enable-lora to load adapters",
        load_first=False,
    ),
}
"""By kind of engine."""


class Post(Protocol):
    """The shape of `wire.fetch.fetch`, as far as it is needed."""

    async def __call__(
        self,
        url: str,
        *,
        method: Literal["GET", "POST"] = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        timeout_s: float,
    ) -> FetchResponse:
        """Raises FetchError where there is no answer."""
        ...


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class LoraEndpoints:
    """One remote engine at `url`, which holds `slots` adapters."""

    def __init__(
        self,
        kind: str,
        url: str,
        authorization: str | None,
        *,
        slots: int,
        timeout_s: float,
        fetch: Post,
    ) -> None:
        self._paths, self._url, self.slots = LORA_ENDPOINTS[kind], url, slots
        self._timeout_s, self._fetch = timeout_s, fetch
        self._headers = [("content-type", "application/json")]
        if authorization is not None:
            self._headers.append(("authorization", authorization))

    async def change(self, load: Sequence[AdapterFile], unload: Sequence[str]) -> Mapping[str, str]:
        """See AdapterLoader. An adapter is there when the engine's list of models has it: some
        versions answer 200 for a path that does not exist."""
        there = await self._listed()
        going = [name for name in unload if name in there]
        if not self._paths.load_first:
            await self._unload(going)
        errors: dict[str, str] = {}
        for adapter in load:
            if adapter.name not in there and (error := await self._load(adapter)) is not None:
                errors[adapter.name] = error
        if load:
            there = await self._listed()
        for adapter in load:
            if adapter.name not in there and adapter.name not in errors:
                errors[adapter.name] = (
                    f"the engine said that it has loaded {adapter.path}, but does not list it"
                )
        if self._paths.load_first and (not load or len(errors) < len(load)):
            await self._unload(going)
        return errors

    async def _load(self, adapter: AdapterFile) -> str | None:
        """Why it could not be loaded; None where the engine says that it was."""
        body = {"lora_name": adapter.name, "lora_path": adapter.path}
        try:
            answer = await self._post(self._paths.load, body, self._timeout_s)
        except EngineError as error:
            return error.message
        if answer.status in (404, 405) and not _is_about(answer, adapter):
            return self._paths.hint
        return None if answer.status == 200 else _said(answer)

    async def _unload(self, names: Sequence[str]) -> None:
        for name in names:
            answer = await self._post(self._paths.unload, {"lora_name": name}, _UNLOAD_S)
            if answer.status not in (200, 404):
                raise EngineError(self._url, f"could not unload {name}: {_said(answer)}")

    async def _listed(self) -> set[str]:
        answer = await self._fetch(
            f"{self._url}/v1/models", headers=self._headers[1:], timeout_s=_LIST_S
        )
        try:
            return {model.id for model in msgspec.json.decode(answer.body, type=_Models).data}
        except msgspec.DecodeError:
            raise EngineError(self._url, f"no model list: {_said(answer)}") from None

    async def _post(self, path: str, body: Mapping[str, str], timeout_s: float) -> FetchResponse:
        return await self._fetch(
            f"{self._url}{path}",
            method="POST",
            headers=self._headers,
            body=msgspec.json.encode(body),
            timeout_s=timeout_s,
        )


def _is_about(answer: FetchResponse, adapter: AdapterFile) -> bool:
    """A 404 that names the adapter is one of it, not of the endpoint."""
    return adapter.name.encode() in answer.body or adapter.path.encode() in answer.body


def _said(answer: FetchResponse) -> str:
    """What an answer that is no success says, in one line."""
    text = answer.body.decode("utf-8", "replace").strip()
    try:
        found = msgspec.json.decode(answer.body)
        while isinstance(found, dict):
            found = next((found[k] for k in ("error", "message", "detail") if k in found), None)
        text = str(found) if found else text
    except msgspec.DecodeError:
        pass
    return f"{answer.status}: {' '.join(text.split())[:_MESSAGE_CHARS_MAX]}"
