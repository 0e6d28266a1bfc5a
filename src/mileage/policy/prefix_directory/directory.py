"""BlockDirectory: which owners hold each block, in the states of a coherence directory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from mileage.core.bounds import require_at_least

__all__ = ["BlockDirectory", "BlockState", "Owner"]

BlockState: TypeAlias = Literal["modified", "shared", "invalid"]
"""modified: one owner has it, and with that copy it is lost; shared: several have it; invalid: it
is not to be used any more, or nobody is known to have it."""

BLOCKS_MAX: Final = 500_000


class Owner(NamedTuple):
    """Who holds blocks: one memory of one rank of a replica."""

    replica: str
    rank: int = 0
    medium: str = "GPU"


class BlockDirectory:
    """Blocks by content id, with who holds each of them.

    An owner whose events have a gap is suspect: what it held may be gone. Until it is trusted again
    its blocks are kept, and no answer counts it. A block that was made invalid is held by nobody;
    its former owners are awaited until each has said that it is gone.

    No more than `blocks_max` blocks are known, about 150 bytes each: the coldest is forgotten when
    another one comes, and `forgotten_total` counts it. Forgetting makes the directory tell less
    than is true, never more.
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        require_at_least("blocks_max", blocks_max, 1)
        self.blocks_max = blocks_max
        self._holders: OrderedDict[int, int] = OrderedDict()
        """Of each block the bits of its owners; the coldest first."""
        self._awaited: dict[int, int] = {}
        """Of each invalid block the bits of those who have not dropped it yet."""
        self._owners: list[Owner] = []
        self._bits: dict[Owner, int] = {}
        self._free: list[int] = []
        """Bits of owners that are gone: replicas come and go, and each bit is in every block."""
        self._suspects = 0
        self.forgotten_total = 0

    def __len__(self) -> int:
        return len(self._holders)

    def __contains__(self, block: int) -> bool:
        return bool(self._holders.get(block, 0) & ~self._suspects)

    # --- what events tell ---------------------------------------------------------------------

    def stored(self, owner: Owner, blocks: Iterable[int]) -> None:
        """The owner holds these now."""
        bit, holders = self._bit(owner), self._holders
        for block in blocks:
            holders[block] = holders.get(block, 0) | bit
            holders.move_to_end(block)
            if block in self._awaited:
                self._awaited.pop(block)  # computed anew: it is valid again
        while len(holders) > self.blocks_max:
            holders.popitem(last=False)
            self.forgotten_total += 1

    def removed(self, owner: Owner, blocks: Iterable[int]) -> None:
        """The owner holds these no more."""
        bit = self._bit(owner)
        for block in blocks:
            _drop(self._holders, block, bit)
            _drop(self._awaited, block, bit)

    def cleared(self, replica: str, rank: int | None = None) -> None:
        """The replica, or one rank of it, holds nothing: the engine says so, or is a new one."""
        bits = self._bits_of(replica, rank)
        for table in (self._holders, self._awaited):
            for block in [block for block, held in table.items() if held & bits]:
                _drop(table, block, bits)
        self._suspects &= ~bits

    def forget(self, replica: str) -> None:
        """The replica is gone for good: it holds nothing, and nobody waits for it."""
        self.cleared(replica)
        for owner in [owner for owner in self._bits if owner.replica == replica]:
            self._free.append(self._bits.pop(owner))

    def suspect(self, replica: str, rank: int) -> None:
        """Events of this rank are missing."""
        self._suspects |= self._bits_of(replica, rank)

    def trusted(self, replica: str, rank: int) -> None:
        """What was missing of its events has been told since."""
        self._suspects &= ~self._bits_of(replica, rank)

    # --- what is asked of it ------------------------------------------------------------------

    def used(self, blocks: Iterable[int]) -> None:
        """A request had these: they are not the coldest."""
        for block in blocks:
            if block in self._holders:
                self._holders.move_to_end(block)

    def owners(self, block: int) -> tuple[Owner, ...]:
        """Those that hold it, as far as is known for sure."""
        return self._named(self._holders.get(block, 0) & ~self._suspects)

    def state(self, block: int) -> BlockState:
        """Its state, by those that are known for sure to hold it."""
        held = (self._holders.get(block, 0) & ~self._suspects).bit_count()
        return "invalid" if not held else "modified" if held == 1 else "shared"

    def match(self, chain: Sequence[int]) -> dict[str, int]:
        """How many of the chain's first blocks each replica has, in any of its memories; without
        those that have none."""
        found: dict[str, int] = {}
        going: set[str] | None = None
        for depth, block in enumerate(chain, 1):
            have = {owner.replica for owner in self.owners(block)}
            going = have if going is None else going & have
            if not going:
                break
            for replica in going:
                found[replica] = depth
        return found

    def invalidate(self, blocks: Iterable[int]) -> Mapping[Owner, tuple[int, ...]]:
        """These are not valid any more, since weights or an adapter changed, or a tenant's data is
        to go; gives who is to be told to drop which of them. Suspects are told too: they may have
        them still."""
        messages: dict[int, list[int]] = {}
        for block in blocks:
            held = self._holders.pop(block, 0)
            if not held:
                continue
            self._awaited[block] = self._awaited.get(block, 0) | held
            for index in _indices(held):
                messages.setdefault(index, []).append(block)
        return {self._owners[index]: tuple(each) for index, each in messages.items()}

    def awaited(self, block: int) -> tuple[Owner, ...]:
        """Of an invalid block, those that have not said yet that it is gone."""
        return self._named(self._awaited.get(block, 0))

    def held_by(self, replica: str) -> list[int]:
        """The blocks that the replica has in any memory, the coldest first."""
        bits = self._bits_of(replica, None) & ~self._suspects
        return [block for block, held in self._holders.items() if held & bits]

    def _bit(self, owner: Owner) -> int:
        bit = self._bits.get(owner)
        if bit is not None:
            return bit
        if self._free:
            bit = self._free.pop()
            self._owners[bit.bit_length() - 1] = owner
        else:
            bit = 1 << len(self._owners)
            self._owners.append(owner)
        self._bits[owner] = bit
        return bit

    def _bits_of(self, replica: str, rank: int | None) -> int:
        bits = 0
        for owner, bit in self._bits.items():
            if owner.replica == replica and rank in (None, owner.rank):
                bits |= bit
        return bits

    def _named(self, bits: int) -> tuple[Owner, ...]:
        return tuple(self._owners[index] for index in _indices(bits))


def _indices(bits: int) -> Iterable[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _drop(table: dict[int, int], block: int, bits: int) -> None:
    held = table.get(block)
    if held is None:
        return
    if held & ~bits:
        table[block] = held & ~bits
    else:
        del table[block]
