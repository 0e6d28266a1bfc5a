"""unless(): takes a step of a start, and gives it up where the stop is asked for first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["unless"]


async def unless(stop_asked: asyncio.Event, step: Coroutine[Any, Any, object]) -> bool:
    """Take the step; False where the stop was asked for first, and the step was given up."""
    stop = asyncio.ensure_future(stop_asked.wait())
    task = asyncio.ensure_future(step)
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            return False
        await task
        return True
    finally:
        stop.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
