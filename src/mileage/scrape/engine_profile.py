"""The profiler within an engine: started, left for some seconds, stopped."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from mileage.core.errors import EngineError
from mileage.wire.fetch import FetchResponse, fetch
from mileage.wire.url import display_url

__all__ = ["profile_engine"]

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 600.0
"""The trace is written before the answer comes."""
_ASK_TIMEOUT_S: Final = 5.0
_OK: Final = range(200, 300)


async def profile_engine(url: str, *, directory: str, for_s: float) -> bool:
    """Profile an engine for some seconds. True where it writes to `directory`, an absolute path.

    SGLang does, on the same machine; vLLM writes to where it was told when it was started.

    The profiler is stopped whatever happens in between, Ctrl-C too.

    Raises:
        EngineError: it does not answer, or was not started so that it can be profiled.
    """
    is_sglang = (await _ask(url, "/get_model_info")) in _OK
    body = b""
    if is_sglang:
        body = msgspec.json.encode({"output_dir": directory})
    await _post(url, "/start_profile", body, _START_TIMEOUT_S)
    try:
        await asyncio.sleep(for_s)
    finally:
        await _post(url, "/stop_profile", b"", _STOP_TIMEOUT_S)
    return is_sglang


async def _ask(url: str, path: str) -> int | None:
    try:
        return (await fetch(f"{url}{path}", timeout_s=_ASK_TIMEOUT_S)).status
    except EngineError:
        return None


async def _post(url: str, path: str, body: bytes, timeout_s: float) -> None:
    headers = (("content-type", "application/json"),) if body else ()
    answer: FetchResponse = await fetch(
        f"{url}{path}", method="POST", headers=headers, body=body, timeout_s=timeout_s
    )
    if answer.status in _OK:
        return
    hint = ""
    if answer.status in (404, 405):
        hint = ": the engine was not started so that it can be profiled (vLLM: --profiler-config)"
    raise EngineError(display_url(url), f"{path} was answered with {answer.status}{hint}")
