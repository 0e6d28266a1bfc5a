"""HotPrefixes: which beginnings of prompts an engine uses again and again, and their token ids."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig

__all__ = ["HotPrefixes", "WarmUpChunk", "WarmUpPrompt"]

QUIET_S: Final = 5.0
"""A request in its answer stores a block more often than that."""
_NODE_BYTES: Final = 270
"""Beside its tokens, measured."""
_TOKEN_BYTES: Final = 4
_TOKEN_MAX: Final = 2**32 - 1
_LEFT_RATIO: Final = 0.8
_SENT_RATIO: Final = 8
"""Prompts repeat what they share: they may have so many times the tokens that are new in all."""


class WarmUpPrompt(NamedTuple):
    """One prompt to send. Its beginning may be in the cache already, by an earlier one."""

    block: int
    """The content id of its last block."""
    tokens: int
    """That it has in all."""
    new_tokens: int
    """That neither the engine nor an earlier prompt of the plan has."""


class WarmUpChunk(NamedTuple):
    """What is sent before the engine's load is looked at again."""

    prompts: tuple[WarmUpPrompt, ...]

    @property
    def new_tokens(self) -> int:
        """That the engine computes for it."""
        return sum(prompt.new_tokens for prompt in self.prompts)


class _Node:
    """A block behind its parent, 0 for none."""

    __slots__ = ("at_s", "children", "heat", "parent", "planned", "stored", "tokens", "touched_s")

    def __init__(self, parent: int, tokens: array[int], now_s: float) -> None:
        self.parent, self.tokens = parent, tokens
        self.heat, self.at_s, self.touched_s = 0.0, now_s, now_s
        self.children = 0
        self.stored = True
        self.planned = False
        """To be sent by ourselves: that it is stored then is no hit."""


class HotPrefixes:
    """A tree of blocks by content id, of one engine, with what each was worth lately.

    An engine tells what it stores, not what it finds. But new blocks behind a known one say that
    this one, and all before it, were found: as many tokens were saved as it is deep. Where they
    come at the end of what was written a moment ago, that is a request going on with its answer,
    and no hit. A block that is stored again, since it had been given up, was asked for, too. The
    heat of a block is its hits, each of which counts half after `half_life_s`: blocks of one engine
    are alike, so the sum over blocks is in tokens saved.

    Bounded by `memory_bytes`: beyond it the coldest ends of branches are forgotten.
    """

    def __init__(self, config: WarmUpConfig) -> None:
        self._config = config
        self._nodes: dict[int, _Node] = {}
        self._bytes = 0
        self.forgotten_total = 0
        """Blocks for which there was no room."""

    def __len__(self) -> int:
        return len(self._nodes)

    # --- what events tell ---------------------------------------------------------------------

    def stored(
        self, parent: int, blocks: Sequence[int], tokens: Sequence[Sequence[int]], now_s: float
    ) -> None:
        """The engine stored these, each with its tokens, behind the parent; 0: at the beginning.

        Blocks behind one that is not known are left out: their beginning could not be sent.
        """
        nodes = self._nodes
        if parent and parent not in nodes:
            return
        first = nodes.get(blocks[0]) if blocks else None
        if parent and not (first is not None and first.planned):
            self._found(parent, now_s)
        for block, ids in zip(blocks, tokens, strict=True):
            node = nodes.get(block)
            if node is None:
                if any(not 0 <= token <= _TOKEN_MAX for token in ids):
                    return
                node = nodes[block] = _Node(parent, array("I", ids), now_s)
                self._bytes += _NODE_BYTES + _TOKEN_BYTES * len(ids)
                if parent:
                    nodes[parent].children += 1
            else:
                if not node.planned:
                    self._hit(node, now_s)
                node.stored, node.planned = True, False
            node.touched_s = now_s
            parent = block
        if self._bytes > self._config.memory_bytes:
            self._shrink(now_s)

    def removed(self, blocks: Iterable[int]) -> None:
        """The engine has given these up: they may be as hot as before."""
        for block in blocks:
            node = self._nodes.get(block)
            if node is not None:
                node.stored = False

    def cleared(self) -> None:
        """The engine has nothing: it is a new one."""
        for node in self._nodes.values():
            node.stored = False

    # --- what is asked of it ------------------------------------------------------------------

    def heat_ratio(self, now_s: float) -> float | None:
        """The share of all heat that is in the engine's cache; None: there is no heat."""
        total = inside = 0.0
        for node in self._nodes.values():
            if not node.heat:  # most were never hit
                continue
            heat = self._heat(node, now_s)
            total += heat
            inside += heat if node.stored else 0.0
        return inside / total if total > 0 else None

    def plan(self, now_s: float) -> list[WarmUpChunk]:
        """What to send, the hottest first, in chunks, within `tokens_max`.

        A block comes with those before it. Blocks that nobody has used twice have no heat, and are
        not sent; neither is what the engine has. Prompts are named by their last blocks: each
        repeats all that it shares, so their `token_ids` are made one at a time, when it is sent.
        """
        nodes, config = self._nodes, self._config
        found = [(self._heat(node, now_s), block) for block, node in nodes.items() if node.heat]
        hot = sorted((-heat, block) for heat, block in found if heat > 0)
        chosen: set[int] = set()
        prompts = _Prompts(nodes, config)
        held: list[int] = []
        held_tokens = taken = 0
        for _, block in hot:
            path = _path(nodes, block, chosen)
            size = sum(len(nodes[each].tokens) for each in path if not nodes[each].stored)
            if taken + size > config.tokens_max:
                continue  # a shorter one may fit
            chosen.update(path)
            if not size:
                continue
            taken += size
            held += path
            held_tokens += size
            if held_tokens >= config.chunk_tokens:
                prompts.add(held)
                held, held_tokens = [], 0
        prompts.add(held)
        return prompts.chunks

    def token_ids(self, prompt: WarmUpPrompt) -> tuple[int, ...] | None:
        """What to send as this prompt of a plan, now: blocks that the engine lacks are no hits when
        it stores them. None: it was forgotten meanwhile, or the engine has all of it."""
        if prompt.block not in self._nodes:
            return None
        path = [self._nodes[block] for block in _path(self._nodes, prompt.block, ())]
        missing = [node for node in path if not node.stored]
        for node in missing:
            node.planned = True
        return tuple(token for node in path for token in node.tokens) if missing else None

    def _found(self, block: int, now_s: float) -> None:
        """New blocks came behind this one."""
        node = self._nodes[block]
        goes_on = node.children == 0 and now_s - node.touched_s < QUIET_S
        at = block
        while at:
            node = self._nodes[at]
            if not goes_on:
                self._hit(node, now_s)
            node.touched_s = now_s
            node.stored = True
            if goes_on:
                return
            at = node.parent

    def _hit(self, node: _Node, now_s: float) -> None:
        node.heat = self._heat(node, now_s) + 1.0
        node.at_s = now_s

    def _heat(self, node: _Node, now_s: float) -> float:
        age_s = max(0.0, now_s - node.at_s)
        return float(node.heat * 0.5 ** (age_s / self._config.half_life_s))

    def _shrink(self, now_s: float) -> None:
        """Forget the coldest ends, so that it is not to be done for each block."""
        limit = _LEFT_RATIO * self._config.memory_bytes
        while self._bytes > limit:
            ends = [
                (self._heat(node, now_s), node.touched_s, block)
                for block, node in self._nodes.items()
                if not node.children
            ]
            for _, _, block in sorted(ends):
                at = block
                while self._bytes > limit:
                    at = self._forget(at)
                    # What led to nothing else, and was never hit, goes with its end.
                    if not at or self._nodes[at].children or self._nodes[at].heat:
                        break

    def _forget(self, block: int) -> int:
        """Gives the parent."""
        node = self._nodes.pop(block)
        self._bytes -= _NODE_BYTES + _TOKEN_BYTES * len(node.tokens)
        self.forgotten_total += 1
        if node.parent:
            self._nodes[node.parent].children -= 1
        return node.parent


class _Prompts:
    """Makes chunks of as few prompts as have all of the blocks that they are to have."""

    def __init__(self, nodes: Mapping[int, _Node], config: WarmUpConfig) -> None:
        self._nodes = nodes
        self._sent_max = _SENT_RATIO * config.tokens_max
        self._chunk_sent_max = _SENT_RATIO * config.chunk_tokens
        self._sent = 0
        self._ends: dict[int, int] = {}
        """By block of a prompt: the tokens up to its end."""
        self.chunks: list[WarmUpChunk] = []

    def add(self, blocks: Sequence[int]) -> None:
        """A chunk, or several where prompts repeat much; what has no room is left out."""
        nodes = self._nodes
        inner = {nodes[block].parent for block in blocks}
        held: list[WarmUpPrompt] = []
        sent = 0
        for block in blocks:
            if block in inner:
                continue
            path = _path(nodes, block, self._ends)
            end = self._ends.get(nodes[path[0]].parent, 0) if path else 0
            tokens = end + sum(len(nodes[each].tokens) for each in path)
            if not path or self._sent + tokens > self._sent_max:
                continue
            if held and sent + tokens > self._chunk_sent_max:
                self.chunks.append(WarmUpChunk(tuple(held)))
                held, sent = [], 0
            for each in path:
                end += len(nodes[each].tokens)
                self._ends[each] = end
            new = sum(len(nodes[each].tokens) for each in path if not nodes[each].stored)
            held.append(WarmUpPrompt(block, tokens, new))
            sent += tokens
            self._sent += tokens
        if held:
            self.chunks.append(WarmUpChunk(tuple(held)))


def _path(nodes: Mapping[int, _Node], block: int, without: Container[int]) -> list[int]:
    """The block after those before it, the first one first."""
    path = []
    at = block
    while at and at not in without:
        path.append(at)
        at = nodes[at].parent
    path.reverse()
    return path
