"""Bodies of the step engine: what it reads of a request, and what it answers."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec

from benchmarks.support.payloads import DONE_EVENT
from benchmarks.support.step_core import BLOCK_TOKENS, StepCore

__all__ = [
    "CHAT_MODEL",
    "EMBEDDING_MODEL",
    "Asked",
    "Stream",
    "asked_of",
    "embedding",
    "metrics",
    "sm_active",
]

CHAT_MODEL = "steps"
EMBEDDING_MODEL = "steps-embedding"
_ABSENT = msgspec.Raw()
_OUTPUT_TOKENS = 16
_CREATED = 1_790_000_000
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Asked(msgspec.Struct, gc=False):
    """What a body asks for. `user` carries orders, as words of the form key=value: `tag` names
    whose work it is, `prompt_tokens` overrides what the prompt's size says."""

    model: str = CHAT_MODEL
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    user: str = ""

    @property
    def output_tokens(self) -> int:
        """Tokens to produce: as many as are allowed."""
        return self.max_completion_tokens or self.max_tokens or _OUTPUT_TOKENS

    @property
    def usage_asked(self) -> bool:
        """Whether a stream is to end with its usage."""
        return bool(self.stream_options and self.stream_options.get("include_usage"))

    @property
    def texts(self) -> list[str]:
        """What is to be embedded."""
        return [self.input] if isinstance(self.input, str) else self.input or []

    def orders(self) -> dict[str, str]:
        """The orders in `user`."""
        return dict(word.split("=", 1) for word in self.user.split() if "=" in word)

    def prompt_tokens(self, bytes_per_token: float) -> int:
        """Tokens of the prompt: the bytes of its JSON over those of a token, and one."""
        ordered = self.orders().get("prompt_tokens")
        if ordered is not None:
            return int(ordered)
        prompt = self.messages or self.prompt
        return int(len(memoryview(prompt)) / bytes_per_token) + 1


asked_of = msgspec.json.Decoder(Asked).decode
"""Reads a body; raises msgspec.DecodeError."""


class Stream:
    """The bytes of streamed answers of one model, each event in a chunk of its own.

    Every answer has the same ones, so that a step of many streams costs next to nothing.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self.token = _chunked(_event(self._choice({"content": " tok"})))
        self._head = _HEAD + _chunked(_event(self._choice({"role": "assistant", "content": ""})))
        self.first = self._head + self.token
        self._last = _chunked(_event(self._choice({"content": " tok"}, finish="length")))
        self._end = _chunked(DONE_EVENT) + b"0\r\n\r\n"

    def last(self, prompt_tokens: int, output_tokens: int, *, usage: bool) -> bytes:
        """The last token with all that ends the answer."""
        counts = {"choices": [], "usage": _usage(prompt_tokens, output_tokens)}
        tail = _chunked(_event({**self._frame(), **counts})) if usage else b""
        return self._last + tail + self._end

    def all(self, prompt_tokens: int, output_tokens: int, *, usage: bool) -> bytes:
        """A whole answer at once."""
        last = self.last(prompt_tokens, output_tokens, usage=usage)
        return self._head + self.token * (output_tokens - 1) + last

    def whole(self, prompt_tokens: int, output_tokens: int) -> bytes:
        """The body of an answer that is not streamed."""
        message = {"role": "assistant", "content": " tok" * output_tokens}
        choice = {"index": 0, "message": message, "text": message["content"]}
        return _encode(
            {
                **self._frame(),
                "object": "chat.completion",
                "choices": [{**choice, "logprobs": None, "finish_reason": "length"}],
                "usage": _usage(prompt_tokens, output_tokens),
            }
        )

    def _frame(self) -> dict[str, object]:
        return {
            "id": "chatcmpl-0f9b2e7c4a5d4d0e9b1c2f3a4b5c6d7e",
            "object": "chat.completion.chunk",
            "created": _CREATED,
            "model": self._model,
        }

    def _choice(self, delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._frame(), "choices": [choice]}


def embedding(texts: list[str]) -> bytes:
    """The answer to an embedding call; each vector says which text it is of."""
    data = [
        {"object": "embedding", "index": index, "embedding": [zlib.crc32(text.encode()) / 2**32]}
        for index, text in enumerate(texts)
    ]
    tokens = sum(len(text) // 4 + 1 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _encode({"object": "list", "data": data, "model": EMBEDDING_MODEL, "usage": usage})


def metrics(core: StepCore) -> bytes:
    """The page of /metrics, by vLLM's names."""
    config, counters = core.config, core.counters
    label = f'{{engine="0",model_name="{CHAT_MODEL}"}}'
    series: list[tuple[str, str, float]] = [
        ("num_requests_running", "gauge", len(core.running)),
        ("num_requests_waiting", "gauge", len(core.waiting)),
        ("kv_cache_usage_perc", "gauge", core.kv_usage_ratio()),
        ("num_preemptions_total", "counter", counters.preemptions),
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("generation_tokens_total", "counter", counters.output_tokens),
        ("request_success_total", "counter", counters.finished),
    ]
    lines = [
        "# TYPE vllm:cache_config_info gauge",
        f'vllm:cache_config_info{{block_size="{BLOCK_TOKENS}",engine="0",'
        f'num_gpu_blocks="{config.kv_blocks}"}} 1.0',
    ]
    for name, kind, value in series:
        lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{label} {float(value)!r}"]
    return "\n".join(lines).encode() + b"\n"


def sm_active(ratio: float) -> bytes:
    """A page as a DCGM exporter has it: how much of the compute is in use."""
    label = '{gpu="0",UUID="GPU-step-engine",Hostname="step-engine"}'
    return f"DCGM_FI_PROF_SM_ACTIVE{label} {ratio:.6f}\n".encode()


def _usage(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }


def _event(value: object) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
