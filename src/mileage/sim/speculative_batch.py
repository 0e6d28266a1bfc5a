"""SpeculativeBatch: requests that decode several tokens in a step, each another number of them."""

from __future__ import annotations

from collections.abc import Iterator

from mileage.sim.decode_batch import DecodeBatch
from mileage.sim.sequence import DECODING, Sequence
from mileage.sim.step_math import blocks_of

__all__ = ["SpeculativeBatch"]


class SpeculativeBatch(DecodeBatch):
    """Its requests are looked at one by one in every step, so that a stretch is one step.

    Before a step each has blocks for all tokens that may come out of it, as far as its answer goes;
    it keeps those that it did not need.
    """

    __slots__ = ("_came", "_context", "_held", "_size", "tokens_max")

    def __init__(self, block_tokens: int, tokens_max: int) -> None:
        super().__init__(block_tokens)
        self.tokens_max = tokens_max
        """The most tokens of a request in a step: those that are proposed, and one."""
        self._size = block_tokens
        self._context = 0
        self._came: dict[Sequence, int] = {}
        """Tokens of each request that came out of the latest step."""
        self._held: dict[Sequence, int] = {}
        """Blocks of each request, in the order in which they joined."""

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._held)

    @property
    def context(self) -> int:
        """Tokens of context of all of them together."""
        return self._context

    @property
    def rows(self) -> int:
        """Tokens that a step computes of them."""
        return self.count * self.tokens_max

    def join(self, sequence: Sequence) -> None:
        """A token of the sequence has just come out of its prefill, and others are to follow."""
        sequence.state = DECODING
        sequence.first_at = self.steps
        self.count += 1
        self._context += sequence.computed
        self._held[sequence] = blocks_of(sequence.computed, self._size)

    def leave(self, sequence: Sequence) -> None:
        """The sequence decodes no longer."""
        self.count -= 1
        self._context -= sequence.computed
        self._came.pop(sequence, None)
        del self._held[sequence]

    def advance(self, sequence: Sequence, tokens: int) -> None:
        """So many tokens of the sequence come out of a step."""
        sequence.computed += tokens
        sequence.produced += tokens
        self._context += tokens
        self._came[sequence] = tokens

    def share_of(self, sequence: Sequence, steps: int) -> tuple[int, int, int]:
        """Its tokens of context when the latest step began, the tokens that this computed of it,
        and those that came out."""
        came = self._came[sequence]
        return sequence.computed - came, self.tokens_max, came

    def ended(self) -> Iterator[Sequence]:
        """Those that are complete by now; each has left."""
        for sequence in [each for each in self._held if each.produced == each.output_tokens]:
            self.leave(sequence)
            yield sequence

    def steps_left(self) -> int:
        """Steps that can be planned at once."""
        return 1

    # --- blocks -------------------------------------------------------------------------------

    def spare(self, sequence: Sequence) -> int:
        """Blocks that the sequence has beside those of its tokens."""
        return self._held[sequence] - blocks_of(sequence.computed, self._size)

    def _wanted(self, sequence: Sequence) -> int:
        last = sequence.prompt_tokens + sequence.output_tokens - 1
        return blocks_of(min(sequence.computed + self.tokens_max, last), self._size)

    def blocks_now(self) -> int:
        """Blocks that the next step takes."""
        return sum(max(0, self._wanted(each) - held) for each, held in self._held.items())

    def grant(self) -> None:
        """They have what `blocks_now` told."""
        for each, held in self._held.items():
            self._held[each] = max(held, self._wanted(each))

    def blocks_after(self, steps: int) -> int:
        """Blocks that further steps take: none are planned."""
        return 0
