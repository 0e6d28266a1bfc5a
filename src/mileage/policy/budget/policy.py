"""What every budget policy sees and says: the next step's load comes in, tokens go out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

__all__ = ["BudgetPolicy", "Pending", "StepLoad"]


class Pending(NamedTuple):
    """A prompt that is to be prefilled, in the middle of it or not begun.

    `deadline_s` is when its first token should come; inf: nothing is asked.
    """

    deadline_s: float
    tokens: int
    """Yet to be computed."""
    before: int
    """Tokens of it that are computed, or were in the cache: attention looks back at these."""


class StepLoad(NamedTuple):
    """What the next step has to do besides: `decoding` requests, with `kv_tokens` of context."""

    decoding: int
    kv_tokens: int
    tokens_max: int
    """Prompt tokens that the engine could take on at most."""
    spare_gaps: Callable[[], Sequence[int]] = tuple
    """Of each request that decodes: how many gaps above the ITL target its p99 forgives yet."""
    past: Callable[[], Sequence[tuple[int, float]]] = tuple
    """Of each request that decodes: its gaps so far, and seconds since its first token."""


class BudgetPolicy(Protocol):
    """One object per engine. Pure: what it decides depends on what it was told, and when."""

    @property
    def again_s(self) -> float:
        """Where it said 0: when it is to be asked again, though nothing has changed; else inf."""
        ...

    def tokens(self, load: StepLoad, pending: Sequence[Pending], now_s: float) -> int:
        """Prompt tokens of the next step, 0 to `load.tokens_max`. `pending`, not empty, is in the
        order in which the engine takes them. 0: none while others decode; never where none does."""
        ...

    def learn(
        self,
        decoding: int,
        kv_tokens: float,
        prefill_tokens: int,
        prefill_pairs: float,
        took_s: float,
    ) -> None:
        """A step with this load took so long. `prefill_pairs`: of a query and a key, of all chunks
        (`costmodel.step_table`)."""
        ...

    def alone_s(self, tokens: int, before: int) -> float:
        """What it takes to compute so many tokens of a prompt behind `before` others, with
        nothing else to do; 0 while that is not known."""
        ...
