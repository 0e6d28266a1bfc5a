"""Step log: what an engine's steps computed, for those who want to see every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["OnStretch", "StepPart", "Stretch", "Watcher"]


class StepPart(msgspec.Struct, frozen=True, gc=False):
    """What a step computed of one request."""

    request_id: int
    prefill_tokens: int
    """Of its prompt: those that were found in a cache are none of them. After a preemption, of what
    it had generated too."""
    decode_tokens: int
    """Tokens that it decoded, and those that were proposed beside them (speculative decoding)."""
    context_tokens: int
    """Tokens of it in the KV cache when the step began."""
    recomputed_tokens: int
    """Of `prefill_tokens`: those that it lost when it was preempted."""
    output_tokens: int
    """Tokens that came out of it at the end of the step."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps one right after the other, with the same requests in each.

    There is one, or all of them only decode: then each has a token more of context of every request
    than the one before.
    """

    begun_s: float
    times_s: NDArray[np.float64]
    """How long each step took."""
    parts: tuple[StepPart, ...]
    """Of the first of them; each request once, those that decode in front."""

    @property
    def ends_s(self) -> NDArray[np.float64]:
        """When each step was over."""
        ends: NDArray[np.float64] = self.begun_s + self.times_s.cumsum()
        return ends

    def parts_of(self, step: int) -> Iterator[StepPart]:
        """Of the step of that index, from 0."""
        if step == 0:
            yield from self.parts
            return
        for part in self.parts:
            yield StepPart(
                part.request_id,
                part.prefill_tokens,
                part.decode_tokens,
                part.context_tokens + step * part.decode_tokens,
                part.recomputed_tokens,
                part.output_tokens,
            )


OnStretch: TypeAlias = Callable[[Stretch], object]
"""Told of every stretch of one engine when it is over, in order: they do not overlap."""


class Watcher(Protocol):
    """Sees what happens in a simulation, and changes nothing."""

    def dispatched(self, request_id: int, replica: str, now_s: float) -> object:
        """A request is sent to a replica; with those of the same call, each by itself."""

    def stepped(self, replica: str, stretch: Stretch) -> object:
        """Steps of an engine are over. Of a replica of several engines each has a name of its own:
        that of the replica, a slash and its number."""
