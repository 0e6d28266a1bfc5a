"""CacheTrace: what a trace asks of a prefix cache, ready to be replayed many times."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Final, Self

from mileage.core.errors import TraceError
from mileage.policy.eviction.policy import BlockUse
from mileage.workload.trace_request import TraceRequest

__all__ = ["CacheTrace"]

_ROOT: Final = -1


class CacheTrace:
    """The requests that tell their prefix blocks, in order of arrival.

    Blocks are numbered anew from 0, as they come. Memory is about 60 bytes a reference.
    """

    __slots__ = (
        "arrived_s",
        "block_tokens",
        "blocks",
        "chains",
        "references",
        "unknown",
        "uses",
    )

    def __init__(self, requests: Iterable[TraceRequest], *, name: str = "trace") -> None:
        """Raises TraceError, with the number of the request, where prefix blocks contradict.

        That is: a block twice in one prompt, a block after different ones in two prompts, more
        blocks than the prompt has, or blocks of two sizes; and where no request has any.
        """
        self.arrived_s: list[float] = []
        self.chains: list[tuple[int, ...]] = []
        """The blocks of each prompt, root first."""
        self.uses: list[BlockUse] = []
        """The same, as a policy is told of them."""
        self.references = 0
        """Blocks of all prompts."""
        self.unknown = 0
        """Requests that do not tell their blocks."""
        self.block_tokens = 0
        numbers: dict[int, int] = {}
        parents: list[int] = []
        total = 0
        for total, request in enumerate(requests, 1):
            if not request.prefix_blocks:
                self.unknown += 1
                continue
            whole = self._whole(request, name, total)
            chain = []
            parent = _ROOT
            for block in request.prefix_blocks:
                number = numbers.setdefault(block, len(numbers))
                if number == len(parents):
                    parents.append(parent)
                elif parents[number] != parent:
                    raise TraceError(name, total, _contradiction(request, block))
                chain.append(number)
                parent = number
            self.arrived_s.append(request.arrived_s)
            self.chains.append(tuple(chain))
            self.uses.append(BlockUse(self.chains[-1], whole))
            self.references += len(chain)
        self.blocks = len(parents)
        """Different blocks."""
        if not self.uses:
            what = "no request" if not total else f"none of {total:,} requests with prefix blocks"
            raise TraceError(name, 0, f"has {what}: a prefix cache needs them (hash_ids)")

    def __len__(self) -> int:
        return len(self.uses)

    @property
    def duration_s(self) -> float:
        """From the start of the trace to the last arrival."""
        return self.arrived_s[-1]

    def with_hints(self, returns_ratios: Sequence[float | None]) -> Self:
        """The same trace, with the chance that each request is followed as callers tell it.

        One for each request, None where nothing is told.
        """
        hinted = copy.copy(self)
        hinted.uses = [
            use._replace(returns_ratio=ratio)
            for use, ratio in zip(self.uses, returns_ratios, strict=True)
        ]
        return hinted

    def _whole(self, request: TraceRequest, name: str, number: int) -> int:
        """Full blocks of the request's prompt."""
        size, count = request.block_tokens, len(request.prefix_blocks)
        if size < 1:
            raise TraceError(name, number, "prefix_blocks without block_tokens")
        if self.block_tokens and size != self.block_tokens:
            message = f"block_tokens: got {size}, expected {self.block_tokens} as before"
            raise TraceError(name, number, message)
        self.block_tokens = size
        if (count - 1) * size >= request.prompt_tokens:
            message = (
                f"{count} prefix_blocks of {size} tokens in a prompt of {request.prompt_tokens}"
            )
            raise TraceError(name, number, message)
        return min(count, request.prompt_tokens // size)


def _contradiction(request: TraceRequest, block: int) -> str:
    if request.prefix_blocks.count(block) > 1:
        return f"prefix_blocks: block {block} is there twice"
    return f"prefix_blocks: block {block} follows another block than in an earlier request"
