"""calibrate(): finds out how long prompts become for one model of one server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.core.request import Endpoint
from mileage.loadgen.bodies import PATHS, Bodies
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.prompts import Prompts
from mileage.loadgen.server_kind import OWNERS, ServerKind
from mileage.loadgen.token_lengths import TokenLengths
from mileage.wire.fetch import FetchResponse, fetch
from mileage.wire.url import display_url

__all__ = ["Ask", "calibrate", "find_server_kind"]

_SAMPLE_WORDS: Final = (4, 68, 260)
_TOKENS_PER_WORD: Final = (0.2, 12.0)
"""What a tokenizer can do with a common word: anything else is no count of tokens."""
_SHOWN_CHARACTERS: Final = 120
_DECIMALS: Final = 6
_encode: Final = msgspec.json.encode


class Ask(Protocol):
    """The shape of `mileage.wire.fetch.fetch`, with a body."""

    async def __call__(
        self,
        url: str,
        *,
        method: Literal["GET", "POST"],
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        timeout_s: float,
    ) -> FetchResponse:
        """Send one request. Raises FetchError."""
        ...


class _Usage(msgspec.Struct):
    """Of OpenAI's APIs; `messages` counts tokens that were cached, or now are, apart."""

    prompt_tokens: int | None = None
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def tokens(self, endpoint: Endpoint) -> int | None:
        """All tokens of the prompt."""
        if endpoint != "messages" or self.input_tokens is None:
            return self.prompt_tokens or self.input_tokens
        cached = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        return self.input_tokens + cached


class _Answer(msgspec.Struct):
    usage: _Usage | None = None
    count: int | None = None
    tokens: list[Any] | None = None
    prompt: str | None = None


class _Model(msgspec.Struct):
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] = []


_answer: Final = msgspec.json.Decoder(_Answer)
_models: Final = msgspec.json.Decoder(_Models)


async def find_server_kind(
    url: str, *, authorization: str | None = None, timeout_s: float = 10.0, ask: Ask = fetch
) -> ServerKind:
    """What kind of server it is, by its list of models; `openai` where that tells nothing.

    `url` is what /v1 follows. Never raises.
    """
    try:
        answer = await ask(
            f"{url}/v1/models", method="GET", headers=_headers(authorization), timeout_s=timeout_s
        )
        listed = _models.decode(answer.body) if answer.status == 200 else _Models()
    except (EngineError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "openai"
    return next(
        (OWNERS[model.owned_by] for model in listed.data if model.owned_by in OWNERS), "openai"
    )


async def calibrate(
    url: str,
    *,
    model: str,
    endpoint: Endpoint = "chat",
    server: ServerKind = "openai",
    authorization: str | None = None,
    seed: int = 0,
    timeout_s: float = 30.0,
    ask: Ask = fetch,
) -> TokenLengths:
    """How many tokens words make, and what the chat template adds.

    The server's tokenizer is asked where it has one that does all that a request goes through, else
    three short requests of one output token are sent and their usage read. Where neither tells, the
    result says why, and is an assumption: a token a word and nothing beside. Never raises.
    """
    client = _Client(url, model, endpoint, server, authorization, timeout_s, ask)
    prompts = Prompts(seed)
    texts = [prompts.text(words, f"sample {words}") for words in _SAMPLE_WORDS]
    reasons: list[str] = []
    ways: list[tuple[Literal["tokenize", "probe"], Callable[[bytes], Any] | None]] = [
        ("tokenize", client.tokenizer()),
        ("probe", client.probe),
    ]
    for source, count in ways:
        if count is None:
            continue
        try:
            tokens = [await count(text) for text in texts]
            slope, overhead, residual = _fitted(tokens)
            return TokenLengths(
                tokens_per_word=slope,
                overhead_tokens=overhead,
                source=source,
                residual_tokens=residual,
                reason="; ".join(reasons) or None,
            )
        except (EngineError, ConfigError) as error:
            reasons.append(str(error))
    return TokenLengths(reason="; ".join(reasons))


class _Client:
    """Counts the tokens of a text in one or another way; raises EngineError where it cannot."""

    def __init__(
        self,
        url: str,
        model: str,
        endpoint: Endpoint,
        server: ServerKind,
        authorization: str | None,
        timeout_s: float,
        ask: Ask,
    ) -> None:
        self._url, self._model, self._endpoint, self._server = url, model, endpoint, server
        self._authorization, self._timeout_s, self._ask = authorization, timeout_s, ask
        self._bodies = Bodies(PlanOptions(model=model, server=server))

    def tokenizer(self) -> Callable[[bytes], Any] | None:
        """The way that the server's tokenizer is asked; None where it has none that counts all."""
        plain = self._endpoint in ("completions", "embeddings")
        if self._server == "vllm" and (plain or self._endpoint == "chat"):
            return self._by_vllm
        if self._server == "llamacpp" and (plain or self._endpoint == "chat"):
            return self._by_llamacpp
        if self._server == "sglang" and plain:
            return self._by_vllm
        return None

    async def probe(self, text: bytes) -> int:
        """By a request that generates one token."""
        body = self._bodies.body(
            self._endpoint, [text], model=self._model, output_tokens=1, stream=False
        )
        answer = await self._post(PATHS[self._endpoint].decode(), body)
        usage = answer.usage or _Usage()
        return self._known(usage.tokens(self._endpoint), "usage")

    async def _by_vllm(self, text: bytes) -> int:
        asked: dict[str, Any] = {"model": self._model}
        if self._endpoint == "chat":
            asked["messages"] = [{"role": "user", "content": text.decode()}]
            asked["add_generation_prompt"] = True
        else:
            asked["prompt"] = text.decode()
        answer = await self._post("/tokenize", _encode(asked))
        return self._known(answer.count, "count")

    async def _by_llamacpp(self, text: bytes) -> int:
        prompt: str | None = text.decode()
        if self._endpoint == "chat":
            asked: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]}
            prompt = (await self._post("/apply-template", _encode(asked))).prompt
            if prompt is None:
                raise EngineError(display_url(self._url), "its answer has no prompt")
        asked = {"content": prompt, "add_special": True, "parse_special": True}
        answer = await self._post("/tokenize", _encode(asked))
        return self._known(None if answer.tokens is None else len(answer.tokens), "tokens")

    async def _post(self, path: str, body: bytes) -> _Answer:
        url = f"{self._url}{path}"
        answer = await self._ask(
            url,
            method="POST",
            headers=[*_headers(self._authorization), ("content-type", "application/json")],
            body=body,
            timeout_s=self._timeout_s,
        )
        shown = display_url(url)
        if answer.status != 200:
            raise EngineError(shown, f"answered {answer.status}{_head(answer.body)}")
        try:
            return _answer.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineError(shown, f"no usable answer: {error}") from None

    def _known(self, count: int | None, what: str) -> int:
        if count is None:
            raise EngineError(display_url(self._url), f"its answer has no {what}")
        return count


def _fitted(tokens: Sequence[int]) -> tuple[float, float, float]:
    """Slope, intercept and the worst residual of a line by least squares. Raises ConfigError."""
    count = len(tokens)
    mean_words = sum(_SAMPLE_WORDS) / count
    mean_tokens = sum(tokens) / count
    spread = sum((words - mean_words) ** 2 for words in _SAMPLE_WORDS)
    pairs = list(zip(_SAMPLE_WORDS, tokens, strict=True))
    slope = sum((words - mean_words) * (seen - mean_tokens) for words, seen in pairs) / spread
    low, high = _TOKENS_PER_WORD
    if not low <= slope <= high:
        expected = f"{low:g}..{high:g}: {list(tokens)} tokens for {list(_SAMPLE_WORDS)} words"
        raise ConfigError("tokens_per_word", round(slope, 3), expected)
    slope = round(slope, _DECIMALS)
    overhead = round(max(0.0, mean_tokens - slope * mean_words), _DECIMALS)
    residual = max(abs(overhead + slope * words - seen) for words, seen in pairs)
    return slope, overhead, round(residual, _DECIMALS)


def _headers(authorization: str | None) -> list[tuple[str, str]]:
    return [] if authorization is None else [("authorization", authorization)]


def _head(body: bytes) -> str:
    text = body[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
    text = "".join(char if char.isprintable() else " " for char in text).strip()
    return f": {text}" if text else ""
