"""Warm-up: the first requests of each shape, which compile kernels and fill pools."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.launch.token_client import RefusedError, TokenClient

__all__ = ["WarmShape", "WarmTook", "default_shapes", "parse_shape", "warm_up"]

_SHAPE: Final = re.compile(r"(\d{1,7})x(\d{1,4})")
_BATCH_MAX: Final = 32
_PROMPT_MAX: Final = 8192
_PROMPT_UNKNOWN: Final = 512
_BATCH_UNKNOWN: Final = 8
_BATCH_PROMPT: Final = 16
_ANSWER: Final = 16
"""Tokens that are left to the answer of the longest prompt."""
REQUESTS_MAX: Final = 256


class WarmShape(NamedTuple):
    """So many requests at once, each with so many tokens of prompt."""

    prompt_tokens: int
    batch: int


_FIRST: Final = WarmShape(1, 1)


class WarmTook(msgspec.Struct, frozen=True, kw_only=True):
    """How long a shape took at first and again: the difference is what was compiled or set up.

    None where it failed; then `failed` says why.
    """

    prompt_tokens: int
    batch: int
    first_s: float | None = None
    second_s: float | None = None
    failed: str | None = None


def parse_shape(text: str) -> WarmShape:
    """PROMPTxBATCH, as 2048x1. Raises ConfigError."""
    found = _SHAPE.fullmatch(text)
    shape = WarmShape(int(found[1]), int(found[2])) if found is not None else WarmShape(0, 0)
    if shape.prompt_tokens < 1 or not 1 <= shape.batch <= REQUESTS_MAX:
        expected = f"PROMPTxBATCH (2048x1): tokens of each prompt, 1..{REQUESTS_MAX} requests"
        raise ConfigError("--warm", text, expected)
    return shape


def default_shapes(
    step_tokens: int | None, active_max: int | None, length_max: int | None
) -> tuple[WarmShape, ...]:
    """One token; a prompt that fills a step; a batch of short ones, up to the active limit."""
    prompt = min(step_tokens or _PROMPT_UNKNOWN, _PROMPT_MAX)
    if length_max is not None:
        prompt = max(1, min(prompt, length_max - _ANSWER))
    batch = min(active_max or _BATCH_UNKNOWN, _BATCH_MAX)
    shapes = (
        WarmShape(1, 1),
        WarmShape(prompt, 1),
        WarmShape(min(_BATCH_PROMPT, prompt), max(1, batch)),
    )
    return tuple(dict.fromkeys(shapes))


async def warm_up(
    client: TokenClient,
    shapes: Sequence[WarmShape],
    *,
    token_s: float,
    timeout_s: float,
    told: Callable[[WarmTook], None],
) -> tuple[WarmTook, ...]:
    """Send each shape twice; what is refused or fails is told, and the next one sent.

    `token_s`: what the very first request took, which was one of 1x1.
    """
    took = []
    for shape in shapes:
        times = [token_s] if shape == _FIRST else []
        found = await _warm(client, shape, timeout_s, times)
        told(found)
        took.append(found)
    return tuple(took)


async def _warm(
    client: TokenClient, shape: WarmShape, timeout_s: float, times: list[float]
) -> WarmTook:
    while len(times) < 2:
        begun_s = time.monotonic()
        asks = [client.ask(shape.prompt_tokens, timeout_s=timeout_s) for _ in range(shape.batch)]
        failures = [e for e in await asyncio.gather(*asks, return_exceptions=True) if e]
        times.append(time.monotonic() - begun_s)
        if failures:
            for failure in failures:
                if not isinstance(failure, EngineError):
                    raise failure
            refused = next((f for f in failures if isinstance(f, RefusedError)), failures[0])
            return WarmTook(
                prompt_tokens=shape.prompt_tokens, batch=shape.batch, failed=str(refused)
            )
    return WarmTook(
        prompt_tokens=shape.prompt_tokens,
        batch=shape.batch,
        first_s=times[0],
        second_s=times[1],
    )
