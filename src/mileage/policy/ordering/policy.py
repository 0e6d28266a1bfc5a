"""What every ordering policy sees and says: a prompt comes in, a key goes out."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["OrderingPolicy", "Prompt"]


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt that an engine has to prefill, as it stands when the engine is given it.

    `deadline_s` is when its first token should come; inf where nothing is asked. `alone_s` is what
    its prefill takes in an engine that has nothing else to do: of the tokens that are not in the
    cache. 0 where that is not known yet.
    """

    arrived_s: float
    deadline_s: float
    tokens: int
    """To be computed."""
    alone_s: float


class OrderingPolicy(Protocol):
    """Pure, and without memory: equal prompts have equal keys."""

    def key(self, prompt: Prompt) -> float:
        """The prompt with the lowest key is prefilled first, whether it waits or is in the middle.

        The key of a prompt never changes. So nothing is ever sorted anew, and whoever comes later
        has to have a higher key in the end: none is overtaken for ever as long as keys grow with
        the time of arrival.
        """
        ...
