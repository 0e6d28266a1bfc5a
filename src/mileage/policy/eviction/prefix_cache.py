"""PrefixCache: which blocks are stored, and which of them may be evicted: leaves not in use."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from mileage.core.bounds import require_at_least
from mileage.policy.eviction.policy import Block, BlockUse, EvictionPolicy

__all__ = ["PrefixCache"]

_HEAP_SLACK = 1024


class _Node:
    __slots__ = ("block", "children", "depth", "parent", "pins", "rank")

    def __init__(self, block: Block, parent: _Node | None) -> None:
        self.block, self.parent = block, parent
        self.rank = 0.0
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children = self.pins = 0


class PrefixCache:
    """A tree of blocks. A block is stored only while its parent is, and hits only with it.

    A policy ranks the blocks; of those that no stored block follows and nobody has pinned, the one
    with the lowest rank is evicted, the deepest of equals. So a parent outlives its children under
    every policy.

    Two ways to use it. A replay calls `serve` for each request. A pool of blocks calls `match` and
    `pin` when a request begins and `use` to tell the policy, `insert` for each block whose content
    is complete, `unpin` when the request ends, and `evict` whenever it needs a block.

    Costs O(1) a block and O(log n) an eviction. `blocks_max` bounds what `serve` leaves stored.
    """

    def __init__(self, policy: EvictionPolicy, *, blocks_max: int) -> None:
        require_at_least("blocks_max", blocks_max, 0)
        self.policy = policy
        self.blocks_max = blocks_max
        self.evictions = 0
        self._nodes: dict[Block, _Node] = {}
        self._awaited: OrderedDict[Block, None] = OrderedDict()
        self._heap: list[tuple[float, int, int, _Node]] = []
        self._pushed = 0
        self._epoch: int | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, block: Block) -> bool:
        return block in self._nodes

    def __iter__(self) -> Iterator[Block]:
        """Stored blocks, parents before children."""
        return iter(self._nodes)

    def parent(self, block: Block) -> Block | None:
        """The block before a stored one; None for a root."""
        parent = self._nodes[block].parent
        return None if parent is None else parent.block

    def match(self, chain: Sequence[Block]) -> int:
        """How many of the chain's first blocks are stored."""
        nodes = self._nodes
        hits = 0
        for block in chain:
            if block not in nodes:
                break
            hits += 1
        return hits

    def serve(self, use: BlockUse, now_s: float) -> int:
        """Serve a whole request at once; gives how many of its blocks were stored before.

        Its other blocks are stored, and then blocks are evicted, perhaps its own, until at most
        `blocks_max` are left.
        """
        chain = use.chain
        hits = self.match(chain)
        keep = max(self._learn(use, hits, now_s), hits)
        if keep > hits:
            self._store(chain, hits, keep)
        for block in chain[keep:]:
            self.policy.evicted(block)
        while len(self._nodes) > self.blocks_max and self.evict(now_s) is not None:
            pass
        return hits

    def use(self, use: BlockUse, now_s: float) -> int:
        """Tell the policy of a request; gives how many of its blocks are worth storing.

        What is never inserted after all, as when a request is cancelled, is forgotten when as many
        others wait as the cache has blocks.
        """
        hits = self.match(use.chain)
        keep = self._learn(use, hits, now_s)
        for block in use.chain[hits:]:
            self._awaited[block] = None
        while len(self._awaited) > self.blocks_max:
            awaited, _ = self._awaited.popitem(last=False)
            self.policy.evicted(awaited)
        return keep

    def _learn(self, use: BlockUse, hits: int, now_s: float) -> int:
        keep = self.policy.use(use, now_s)
        if hits:  # of those found only the deepest can be a leaf
            self._offer(self._nodes[use.chain[hits - 1]])
        return keep

    def _store(self, chain: Sequence[Block], start: int, end: int) -> None:
        node = self._nodes[chain[start - 1]] if start else None
        for block in chain[start:end]:
            above, node = node, _Node(block, node)
            if above is not None:
                above.children += 1
            self._nodes[block] = node
        assert node is not None
        self._offer(node)

    def insert(self, block: Block, parent: Block | None) -> None:
        """Store a block that follows `parent`, which must be stored; again changes nothing."""
        if block in self._nodes:
            return
        self._awaited.pop(block, None)
        above = None if parent is None else self._nodes[parent]
        node = self._nodes[block] = _Node(block, above)
        if above is not None:
            above.children += 1
        self._offer(node)

    def pin(self, chain: Sequence[Block]) -> None:
        """Stored blocks that a request reads: they stay until as many `unpin`."""
        for block in chain:
            self._nodes[block].pins += 1

    def unpin(self, chain: Sequence[Block]) -> None:
        """The request reads them no more."""
        for block in chain:
            node = self._nodes[block]
            assert node.pins > 0
            node.pins -= 1
            self._offer(node)

    def evict(self, now_s: float) -> Block | None:
        """Remove the block that the policy can best do without; None where none may go."""
        epoch = self.policy.epoch(now_s)
        if epoch != self._epoch:
            if self._epoch is not None:
                self._fill_heap()
            self._epoch = epoch
        heap = self._heap
        while heap:
            rank, _, _, node = heapq.heappop(heap)
            if self._may_go(node) and node.rank == rank:
                self._remove(node)
                self.evictions += 1
                return node.block
        return None

    def remove(self, block: Block) -> None:
        """A stored block, which is neither pinned nor followed by one, has become invalid."""
        node = self._nodes[block]
        assert self._may_go(node)
        self._remove(node)

    def _may_go(self, node: _Node) -> bool:
        stored = self._nodes.get(node.block) is node
        return stored and not node.children and not node.pins

    def _remove(self, node: _Node) -> None:
        del self._nodes[node.block]
        self.policy.evicted(node.block)
        parent = node.parent
        if parent is not None:
            parent.children -= 1
            self._offer(parent)

    def _offer(self, node: _Node) -> None:
        """Rank the block among those that may go, if it is one."""
        if node.children or node.pins:
            return
        # Entries of blocks that were used since stay behind. They are known by their rank, and
        # swept out when they are the most of the heap.
        if len(self._heap) > 2 * len(self._nodes) + _HEAP_SLACK:
            self._fill_heap()
        node.rank = self.policy.rank(node.block)
        self._pushed += 1
        heapq.heappush(self._heap, (node.rank, -node.depth, self._pushed, node))

    def _fill_heap(self) -> None:
        """Rank all blocks that may go anew."""
        heap = []
        for node in self._nodes.values():
            if not node.children and not node.pins:
                node.rank = self.policy.rank(node.block)
                self._pushed += 1
                heap.append((node.rank, -node.depth, self._pushed, node))
        heapq.heapify(heap)
        self._heap = heap
