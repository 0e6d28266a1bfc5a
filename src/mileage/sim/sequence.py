"""Sequence: one request inside an engine."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["DECODING", "GONE", "LOADING", "NEW", "PREFILLING", "WAITING", "Sequence"]

NEW: Final = 0
"""No engine has it yet."""
WAITING: Final = 1
PREFILLING: Final = 2
DECODING: Final = 3
GONE: Final = 4
"""Finished, failed or aborted."""
LOADING: Final = 5
"""It has its blocks, and waits for what comes into them."""


class Sequence:
    """What an engine knows of a request, and what it found out about it.

    `target` tokens are to be computed before its next token comes out: its prompt, and after a
    preemption what it had generated too. While it decodes, `base` plus the engine's count of steps
    is the number of tokens that are computed. `keys` are the content ids of its prompt's full
    blocks, of `unit_tokens` tokens each.
    """

    __slots__ = (
        "adapter",
        "arrived_s",
        "base",
        "cached_tokens",
        "computed",
        "deadline_s",
        "delay_s",
        "ends_at",
        "finished_s",
        "first_at",
        "first_token_s",
        "id",
        "itl_mean_s",
        "itl_p99_s",
        "key",
        "keys",
        "known",
        "last_token_s",
        "lost",
        "output_tokens",
        "owned",
        "past_gaps",
        "place",
        "preemptions",
        "produced",
        "prompt_tokens",
        "registered",
        "state",
        "target",
        "unit_tokens",
    )

    def __init__(
        self,
        id: int,
        prompt_tokens: int,
        output_tokens: int,
        keys: tuple[Hashable, ...] = (),
        unit_tokens: int = 0,
    ) -> None:
        self.id = id
        self.prompt_tokens = self.target = prompt_tokens
        self.output_tokens = output_tokens
        self.keys, self.unit_tokens = keys, unit_tokens
        self.state = NEW
        self.computed = self.produced = self.preemptions = 0
        self.cached_tokens = -1
        """Prompt tokens found in the cache when it first ran; -1: it never has."""
        self.lost = 0
        """The most tokens that were computed of it when it was preempted."""
        self.base = 0
        self.first_at = self.ends_at = -1
        """The engine's counts of steps between which its tokens since the last prefill come."""
        self.owned: list[Hashable] = []
        """Of its keys, those whose blocks it shares or has made known."""
        self.registered = 0
        self.past_gaps: list[NDArray[np.float64]] | None = None
        """Gaps between its tokens before it was last preempted, and those gaps that this made."""
        self.adapter: str | None = None
        """The LoRA adapter that it needs."""
        self.delay_s = 0.0
        """Time from its last token to the first step in which it decodes here: see hand-over."""
        self.arrived_s = math.nan
        """When it came to those who gave it to the engine; NaN: they do not tell."""
        self.deadline_s = math.inf
        self.key = 0.0
        self.known = self.place = 0
        """Of an engine with an order of its own: when its first token should come, its key, what of
        it was in the cache when it came, and which of its entries in the order holds."""
        self.first_token_s = self.last_token_s = self.finished_s = math.nan
        self.itl_p99_s = self.itl_mean_s = math.nan
