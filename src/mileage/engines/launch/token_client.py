"""Asks an engine for tokens, to know that it really serves."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.kinds import KINDS, MODELS_PATH
from mileage.engines.launch.launch_command import LaunchCommand
from mileage.wire.fetch import FetchError, FetchResponse, fetch

__all__ = ["KeyRefusedError", "RefusedError", "TokenClient"]

_HEALTH_S: Final = 5.0
_TOKENS: Final = 4
"""Of an answer: the first comes of the prompt's step, those after it of decoding steps."""
_FIRST_ID: Final = 10
_IDS: Final = 200
"""Token ids that every vocabulary has. No two prompts begin with the same two of them, so that no
cache of prefixes shortens one; only those of one token come again, as there are no more."""
_KEY_REFUSED: Final = (401, 403)
_MESSAGE_MAX: Final = 300


class RefusedError(EngineError):
    """The engine refuses such a request: asking again does not help."""


class KeyRefusedError(RefusedError):
    """It wants another API key: no request will help."""


class TokenClient:
    """Asks the engine of a command; `model` is known after `find_model`."""

    def __init__(self, command: LaunchCommand) -> None:
        self._command = command
        key = command.api_key
        self._headers = [("authorization", f"Bearer {key}")] if key is not None else []
        self._asked = 0
        self._form = "ids"
        self.model = ""
        self.length_max: int | None = None
        """The longest prompt and answer together, where the engine tells."""

    async def is_up(self) -> bool:
        """Does it answer that it is healthy? A server without such a page is up if it answers.

        So is one that shows it to nobody without a key: a request for a token tells more.
        """
        missing = 0
        paths = KINDS[self._command.engine_kind].health_paths
        if self._command.kind == "command":
            paths = ("/health", MODELS_PATH)
        for path in paths:
            try:
                answer = await self._get(path, timeout_s=_HEALTH_S)
            except FetchError:
                return False
            if answer.status < 300:
                return True
            missing += answer.status in (*_KEY_REFUSED, 404, 405)
        return missing == len(paths)

    async def find_model(self, *, timeout_s: float) -> None:
        """Ask for the name of a model that it serves. Raises EngineError, KeyRefusedError."""
        answer = await self._get(MODELS_PATH, timeout_s=timeout_s)
        try:
            first = msgspec.json.decode(answer.body)["data"][0]
            self.model = str(first["id"])
        except (msgspec.DecodeError, LookupError, TypeError):
            if self._command.model is None and answer.status in _KEY_REFUSED:
                raise self._refused(answer) from None
            if self._command.model is None:
                raise EngineError(
                    self._command.url, f"{MODELS_PATH} names no model ({answer.status})"
                ) from None
            self.model, first = self._command.model, {}
        meta = first.get("meta")
        length = first.get("max_model_len") or (
            meta.get("n_ctx_train") if isinstance(meta, dict) else None
        )
        self.length_max = length if isinstance(length, int) else None

    async def ask(self, prompt_tokens: int, *, timeout_s: float) -> None:
        """Return once tokens came. Raises EngineError, RefusedError for an answer of 4xx, of these
        KeyRefusedError for 401 and 403.

        The prompt is token ids; a server that takes none gets words, one that completes no
        prompts a chat.
        """
        self._asked += 1
        number = self._asked  # its own, however many are asked meanwhile
        while True:
            answer = await self._post(number, prompt_tokens, timeout_s)
            if answer.status < 300:
                return self._check(answer)
            following = {"ids": "words", "words": "chat"}.get(self._form)
            if answer.status not in (400, 404, 405, 422, 501) or following is None:
                break
            if self._form == "ids" and answer.status == 404:
                following = "chat"
            if prompt_tokens > 1:  # it is the length that it may refuse
                break
            self._form = following
        raise self._refused(answer)

    def _refused(self, answer: FetchResponse) -> EngineError:
        kind = RefusedError if 400 <= answer.status < 500 else EngineError
        if answer.status in _KEY_REFUSED:
            kind = KeyRefusedError
        return kind(self._command.url, f"answered {answer.status}: {_message(answer)}")

    async def _post(self, number: int, prompt_tokens: int, timeout_s: float) -> FetchResponse:
        start = [_FIRST_ID + number % _IDS, _FIRST_ID + number // _IDS % _IDS][:prompt_tokens]
        rest = prompt_tokens - len(start)
        body: dict[str, Any] = {"model": self.model, "max_tokens": _TOKENS, "temperature": 0.0}
        words = " ".join(map(str, start)) + " a" * rest
        if self._form == "ids":
            body["prompt"] = [*start, *([_FIRST_ID] * rest)]
        elif self._form == "words":
            body["prompt"] = words
        else:
            body["messages"] = [{"role": "user", "content": words}]
        path = "/v1/chat/completions" if self._form == "chat" else "/v1/completions"
        return await fetch(
            f"{self._command.url}{path}",
            method="POST",
            headers=[*self._headers, ("content-type", "application/json")],
            body=msgspec.json.encode(body),
            timeout_s=timeout_s,
        )

    async def _get(self, path: str, *, timeout_s: float) -> FetchResponse:
        return await fetch(f"{self._command.url}{path}", headers=self._headers, timeout_s=timeout_s)

    def _check(self, answer: FetchResponse) -> None:
        """Is there a token in it?"""
        try:
            document = msgspec.json.decode(answer.body)
            usage = document.get("usage") or {}
            choice = document["choices"][0]
            message = choice.get("message") or {}
            texts = (choice.get("text"), message.get("content"), message.get("reasoning_content"))
        except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
            raise EngineError(self._command.url, "its answer is no completion") from None
        tokens = usage.get("completion_tokens")
        if not any(texts) and not (isinstance(tokens, int) and tokens > 0):
            raise EngineError(self._command.url, "answered without a token")


def _message(answer: FetchResponse) -> str:
    try:
        document = msgspec.json.decode(answer.body)
        error = document.get("error") or document
        text = error if isinstance(error, str) else str(error.get("message") or error)
    except (msgspec.DecodeError, AttributeError):
        text = answer.body.decode("utf-8", "replace")
    return text[:_MESSAGE_MAX]
