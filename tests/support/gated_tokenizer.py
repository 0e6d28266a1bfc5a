"""A tokenizer that works when it is let, for tests of what waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Gate", "until"]


class Gate:
    """A tokenizer that works only while it is open, and fails for the text `bad`."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()
        self.asked: list[str] = []

    def encode_batch_fast(
        self, input: Sequence[str], *, add_special_tokens: bool = True
    ) -> Sequence[Any]:
        self.asked += input
        self.begun.set()
        assert self.open.wait(60)
        if "bad" in input:
            raise ValueError("the text of a prompt")
        if "panic" in input:
            raise BaseException("of a library in another language")
        return [text.split() for text in input]


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
