"""Conversations: which one an arrival continues, and what was said in it so far."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from mileage.workload.synthetic.config import ConversationsConfig

__all__ = ["Conversation", "Conversations"]


class Conversation:
    """One conversation, between two turns."""

    __slots__ = ("history_tokens", "number", "prefix", "prefix_tokens", "tenant")

    def __init__(
        self, number: int, prefix: int | None, prefix_tokens: int, tenant: str | None
    ) -> None:
        self.number, self.prefix, self.prefix_tokens = number, prefix, prefix_tokens
        self.tenant = tenant
        self.history_tokens = prefix_tokens


class Conversations:
    """Those that wait for their next turn, by the time from which it may come."""

    def __init__(self, config: ConversationsConfig, rng: Random) -> None:
        self._config, self._rng = config, rng
        self._waiting: list[tuple[float, int, Conversation]] = []
        self._last = 1.0 / config.turns

    def ready(self, now_s: float) -> Conversation | None:
        """The one that has been ready for longest, taken out; None where none is ready."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= now_s:
            return heappop(waiting)[2]
        return None

    def begins(self) -> bool:
        """Whether a request without a turn to continue begins a conversation."""
        return self._rng.random() < self._config.ratio

    def said(
        self, conversation: Conversation, prompt_tokens: int, output_tokens: int, now_s: float
    ) -> None:
        """A turn with this prompt (all of it) and answer came; another one may follow."""
        history = prompt_tokens + output_tokens
        if self._rng.random() < self._last or history >= self._config.context_tokens_max:
            return
        conversation.history_tokens = history
        think_s = self._config.think_s
        ready_s = now_s + (self._rng.expovariate(1.0 / think_s) if think_s else 0.0)
        heappush(self._waiting, (ready_s, conversation.number, conversation))
        if len(self._waiting) > self._config.waiting_max:
            heappop(self._waiting)
