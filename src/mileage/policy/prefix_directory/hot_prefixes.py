"""HotPrefixes: which beginnings of prompts an engine uses again and again, and their token ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
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
                    break  # what came before it has its bounds all the same
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

        A block comes behind those before it, which are as hot as what they lead to; of blocks that
        are as hot as each other, those of one branch come together. Blocks that nobody has used
        twice have no heat, and are not sent; neither is what the engine has. Prompts are named by
        their last blocks: each repeats all that it shares, so their `token_ids` are made one at a
        time, when it is sent. Takes time for each block once, however deep it is.
        """
        nodes, config = self._nodes, self._config
        heats = self._heats(now_s)
        behind: dict[int, list[int]] = {}
        for block in nodes:
            if block in heats:
                behind.setdefault(nodes[block].parent, []).append(block)
        prompts = _Prompts(nodes, config)
        held: list[int] = []
        held_tokens = taken = number = last = 0
        hottest = [(-heats[block], 0, block) for block in behind.get(0, ())]
        heapify(hottest)
        while hottest:
            _, _, block = heappop(hottest)
            node = nodes[block]
            size = 0 if node.stored else len(node.tokens)
            if taken + size > config.tokens_max:
                continue  # a shorter one may fit; what is behind this one cannot
            if size:
                if held_tokens >= config.chunk_tokens and node.parent != last:
                    prompts.add(held)
                    held, held_tokens = [], 0
                held.append(block)
                held_tokens += size
                taken += size
            last = block
            for each in behind.get(block, ()):
                number -= 1
                heappush(hottest, (-heats[each], number, each))
        prompts.add(held)
        return prompts.chunks

    def token_ids(self, prompt: WarmUpPrompt) -> tuple[int, ...] | None:
        """What to send as this prompt of a plan, now: blocks that the engine lacks are no hits when
        it stores them. None: it was forgotten meanwhile, or the engine has all of it."""
        if prompt.block not in self._nodes:
            return None
        path = [self._nodes[block] for block in _path(self._nodes, prompt.block)]
        missing = [node for node in path if not node.stored]
        for node in missing:
            node.planned = True
        return tuple(token for node in path for token in node.tokens) if missing else None

    def _heats(self, now_s: float) -> dict[int, float]:
        """Of each block that has any: its heat, or that of the hottest one behind it."""
        nodes, heats = self._nodes, dict[int, float]()
        for block in reversed(nodes):  # each came after the one before it
            node = nodes[block]
            heat = heats.get(block, 0.0)
            if node.heat:
                heat = max(heat, self._heat(node, now_s))
            if heat > 0:
                heats[block] = heat
                if node.parent and heat > heats.get(node.parent, 0.0):
                    heats[node.parent] = heat
        return heats

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
        nodes = self._nodes
        ends = [self._end(block, now_s) for block, node in nodes.items() if not node.children]
        heapify(ends)
        while ends and self._bytes > limit:
            at = heappop(ends)[-1]
            while self._bytes > limit:
                at = self._forget(at)
                # What led to nothing else, and was never hit, goes with its end.
                if not at or nodes[at].children or nodes[at].heat:
                    break
            if at and not nodes[at].children:
                heappush(ends, self._end(at, now_s))

    def _end(self, block: int, now_s: float) -> tuple[float, float, int]:
        """How soon it is forgotten: the coldest first, then what was touched the longest ago."""
        node = self._nodes[block]
        return self._heat(node, now_s), node.touched_s, block

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
        self._had: set[int] = set()
        """Blocks of prompts."""
        self._passed: set[int] = set()
        """Blocks that the engine has, before those that it lacks."""
        self._ends: dict[int, int] = {}
        """The tokens up to the end of each."""
        for block, node in nodes.items():
            self._ends[block] = self._ends.get(node.parent, 0) + len(node.tokens)
        self.chunks: list[WarmUpChunk] = []

    def add(self, blocks: Sequence[int]) -> None:
        """A chunk, or several where prompts repeat much; what has no room is left out.

        The blocks are such that the engine lacks, each after those before it.
        """
        inner = {self._before(block) for block in blocks}
        held: list[WarmUpPrompt] = []
        sent = 0
        for block in blocks:
            tokens = self._ends[block]
            if block in inner or self._sent + tokens > self._sent_max:
                continue
            if held and sent + tokens > self._chunk_sent_max:
                self.chunks.append(WarmUpChunk(tuple(held)))
                held, sent = [], 0
            held.append(WarmUpPrompt(block, tokens, self._new(block)))
            sent += tokens
            self._sent += tokens
        if held:
            self.chunks.append(WarmUpChunk(tuple(held)))

    def _before(self, block: int) -> int:
        """The nearest one before it that the engine lacks; 0 where there is none, or it is known
        that this one is behind it."""
        nodes, passed = self._nodes, self._passed
        at = nodes[block].parent
        while at and nodes[at].stored:
            if at in passed:
                return 0
            passed.add(at)
            at = nodes[at].parent
        return at

    def _new(self, block: int) -> int:
        """Tokens of a prompt that ends with it which neither the engine nor one before has."""
        new, at = 0, block
        while at and at not in self._had:
            self._had.add(at)
            node = self._nodes[at]
            new += 0 if node.stored else len(node.tokens)
            at = node.parent
        return new


def _path(nodes: Mapping[int, _Node], block: int) -> list[int]:
    """The block after those before it, the first one first."""
    path = []
    at = block
    while at:
        path.append(at)
        at = nodes[at].parent
    path.reverse()
    return path
