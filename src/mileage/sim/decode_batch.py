"""DecodeBatch: the requests of an engine that decode, as sums: a step costs no look at each."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mileage.sim.sequence import DECODING, Sequence

__all__ = ["DecodeBatch", "SlotBatch"]


class DecodeBatch:
    """All of them take part in every step, so that a count of steps is a common clock.

    A sequence has `base` + `steps` tokens computed, ends at the count `ends_at`, and needs another
    block in each step before which the number of its tokens is a multiple of the block's: in every
    `block_tokens`-th step. How many do so in which of these is all that is kept of their blocks.
    """

    __slots__ = ("_bases", "_block_tokens", "_ends", "_needs", "_order", "count", "steps")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.count = 0
        self.steps = 0
        """Steps so far, those with no request that decodes included."""
        self._bases = 0
        self._needs = [0] * block_tokens
        """Sequences that need a block, by the count of steps modulo the tokens of a block."""
        self._ends: list[tuple[int, int, Sequence]] = []
        self._order = 0

    @property
    def context(self) -> int:
        """Tokens of context of all of them together."""
        return self._bases + self.count * self.steps

    @property
    def rows(self) -> int:
        """Tokens that a step computes of them."""
        return self.count

    def join(self, sequence: Sequence) -> None:
        """A token of the sequence has just come out of its prefill, and others are to follow."""
        steps = self.steps
        sequence.state = DECODING
        sequence.first_at = steps
        sequence.ends_at = steps + sequence.output_tokens - sequence.produced
        sequence.base = base = sequence.computed - steps
        self.count += 1
        self._bases += base
        self._needs[-base % self._block_tokens] += 1
        self._order += 1
        heapq.heappush(self._ends, (sequence.ends_at, self._order, sequence))

    def leave(self, sequence: Sequence) -> None:
        """The sequence decodes no longer: brings its own counts up to date."""
        base = sequence.base
        self.count -= 1
        self._bases -= base
        self._needs[-base % self._block_tokens] -= 1
        sequence.computed = base + self.steps
        sequence.produced = sequence.output_tokens - (sequence.ends_at - self.steps)

    def ended(self) -> Iterator[Sequence]:
        """Those that are complete by now; each has left."""
        ends, steps = self._ends, self.steps
        while ends and ends[0][0] <= steps:
            ends_at, _, sequence = heapq.heappop(ends)
            if sequence.state == DECODING and sequence.ends_at == ends_at:
                self.leave(sequence)
                yield sequence

    def share_of(self, sequence: Sequence, steps: int) -> tuple[int, int, int]:
        """Its tokens of context when the latest `steps` steps began, the tokens that each of these
        computed of it, and those that came out of each."""
        return sequence.base + self.steps - steps, 1, 1

    def steps_left(self) -> int:
        """Steps until the next of them is complete; there must be one."""
        ends = self._ends
        while ends[0][2].state != DECODING or ends[0][2].ends_at != ends[0][0]:
            heapq.heappop(ends)  # it was preempted, or left
        return ends[0][0] - self.steps

    # --- blocks -------------------------------------------------------------------------------

    def blocks_now(self) -> int:
        """Blocks that the next step takes."""
        return self._needs[self.steps % self._block_tokens]

    def blocks_after(self, steps: int) -> int:
        """Blocks that the `steps` steps take that follow the next one."""
        rounds, steps = divmod(steps, self._block_tokens)
        start = (self.steps + 1) % self._block_tokens
        end = start + steps
        blocks = rounds * self.count + sum(self._needs[start:end])
        if end > self._block_tokens:
            blocks += sum(self._needs[: end - self._block_tokens])
        return blocks

    def steps_within(self, blocks: int) -> int:
        """The most steps after the next one that take no more than `blocks` blocks."""
        rounds, left = divmod(blocks, self.count)
        steps, at = rounds * self._block_tokens, self.steps + 1
        while self._needs[at % self._block_tokens] <= left:
            left -= self._needs[at % self._block_tokens]
            steps += 1
            at += 1
        return steps


class SlotBatch(DecodeBatch):
    """Each of them has room for the longest context from the start: none needs another block."""

    __slots__ = ()

    def blocks_now(self) -> int:
        """Blocks that the next step takes."""
        return 0

    def blocks_after(self, steps: int) -> int:
        """Blocks that the `steps` steps take that follow the next one."""
        return 0
