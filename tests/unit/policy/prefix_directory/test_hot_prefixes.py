"""What an engine used again and again is known with its tokens, within bounds, and sent first."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.feed import AllBlocksCleared, BlockRemoved, BlockStored, KvFeed
from mileage.policy.prefix_directory.hot_prefixes import QUIET_S, HotPrefixes
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig

SIZE = 4
"""Tokens of a block."""


def config(**settings: float) -> WarmUpConfig:
    return WarmUpConfig(enabled=True, **settings)  # type: ignore[arg-type]


class Engine:
    """An engine's cache that tells a memory of each prompt; unlimited."""

    def __init__(self, **settings: float) -> None:
        self.memory = HotPrefixes(config(**settings))
        self.cached: set[tuple[int, ...]] = set()
        self.now_s = 0.0

    def prompt(self, *tokens: int, after_s: float = 60.0) -> int:
        """Serve it, some time after the one before; how many of its tokens were cached."""
        self.now_s += after_s
        ends = range(SIZE, len(tokens) + 1, SIZE)
        missing = [end for end in ends if tokens[:end] not in self.cached]
        if missing:
            before = missing[0] - SIZE
            self.memory.stored(
                block_id(tokens[:before]),
                [block_id(tokens[:end]) for end in missing],
                [tokens[end - SIZE : end] for end in missing],
                self.now_s,
            )
        self.cached.update(tokens[:end] for end in missing)
        return SIZE * (len(ends) - len(missing))

    def restart(self) -> None:
        self.cached.clear()
        self.memory.cleared()

    def sent(self) -> list[tuple[int, ...]]:
        """The plan, each of its prompts sent."""
        found = []
        for chunk in self.memory.plan(self.now_s):
            for prompt in chunk.prompts:
                token_ids = self.memory.token_ids(prompt)
                assert token_ids is not None
                assert len(token_ids) == prompt.tokens
                self.prompt(*token_ids, after_s=0.0)
                found.append(token_ids)
        return found


def block_id(tokens: tuple[int, ...]) -> int:
    return hash((7, tokens)) & (2**63 - 1) if tokens else 0


SYSTEM = tuple(range(1, 9))
OTHER = tuple(range(101, 109))


def test_a_beginning_that_others_share_is_hot_and_what_came_once_is_not() -> None:
    engine = Engine()
    for question in range(3):
        engine.prompt(*SYSTEM, *[200 + question] * SIZE)
    engine.prompt(*OTHER)
    engine.restart()
    assert engine.memory.heat_ratio(engine.now_s) == 0.0
    assert engine.sent() == [SYSTEM]
    assert engine.memory.heat_ratio(engine.now_s) == 1.0


def test_the_hottest_comes_first_and_a_block_with_those_before_it() -> None:
    engine = Engine(chunk_tokens=1)
    for question in range(2):
        engine.prompt(*OTHER, *[200 + question] * SIZE)
    for question in range(5):
        engine.prompt(*SYSTEM, *[300 + question] * SIZE)
    engine.restart()
    plan = engine.memory.plan(engine.now_s)
    prompts = [prompt for chunk in plan for prompt in chunk.prompts]
    sent = [engine.memory.token_ids(each) for each in prompts if each.tokens == 8]
    assert sent == [SYSTEM, OTHER]
    assert sum(prompt.new_tokens for prompt in prompts) == 16


def test_tokens_of_a_plan_are_bounded() -> None:
    engine = Engine(tokens_max=12, chunk_tokens=100)
    for beginning in (SYSTEM, OTHER):
        for question in range(3):
            engine.prompt(*beginning, *[200 + question] * SIZE)
    engine.restart()
    assert sum(chunk.new_tokens for chunk in engine.memory.plan(engine.now_s)) == 12


def test_a_plan_repeats_no_tokens_and_what_it_sends_is_bounded() -> None:
    """Conversations behind one long beginning that each came back once."""
    bounds = config(tokens_max=50_000, memory_bytes=1 << 20)
    memory = HotPrefixes(bounds)
    system = list(range(1, 251))
    memory.stored(0, system, [[block] * 16 for block in system], 0.0)
    for turn in (1, 2):
        for chat in range(1500):
            before = 250 if turn == 1 else 1000 + chat
            memory.stored(
                before, [turn * 1000 + 1000 * (turn - 1) + chat], [[chat] * 16], 60 * turn
            )
    memory.cleared()
    tracemalloc.start()
    try:
        chunks = memory.plan(200.0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * bounds.memory_bytes
    prompts = [prompt for chunk in chunks for prompt in chunk.prompts]
    assert len(prompts) > 50
    assert sum(prompt.tokens for prompt in prompts) <= 8 * bounds.tokens_max
    assert sum(prompt.new_tokens for prompt in prompts) == 4000 + 16 * len(prompts)
    assert max(sum(p.tokens for p in each.prompts) for each in chunks) <= 8 * bounds.chunk_tokens


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of the package's Python a call runs: its work, whatever the machine."""
    found = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal found
        if "prefix_directory" not in frame.f_code.co_filename:
            return None
        found += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def deep(blocks: int, branches: int = 1, **settings: float) -> HotPrefixes:
    """One long prompt that was asked again, with other ends; nothing of it is in the engine."""
    memory = HotPrefixes(config(memory_bytes=1 << 30, **settings))
    chain = list(range(1, blocks + 1))
    memory.stored(0, chain, [[block] * SIZE for block in chain], 0.0)
    for turn in (1, 2):
        for branch in range(branches):
            at = blocks + branch * 2 + turn
            memory.stored(at - 1 if turn == 2 else blocks, [at], [[at] * SIZE], 60.0 * turn)
    memory.cleared()
    return memory


@pytest.mark.parametrize("tokens_max", [400, 2000, 1 << 20])
@pytest.mark.parametrize("branches", [1, 500])
def test_a_plan_takes_work_for_each_block_once_however_deep(tokens_max: int, branches: int) -> None:
    work = []
    for blocks in (500, 2000):
        memory = deep(blocks, branches, tokens_max=tokens_max, chunk_tokens=64)
        work.append(lines_run(lambda: memory.plan(200.0)) / len(memory))  # noqa: B023
    assert work[0] < 60
    assert work[1] < 60


def test_a_long_path_that_the_engine_has_is_walked_once() -> None:
    memory = deep(2000, 500, tokens_max=4000)
    memory.stored(0, range(1, 2001), [[block] * SIZE for block in range(1, 2001)], 300.0)
    assert lines_run(lambda: memory.plan(300.0)) / len(memory) < 60
    (prompt, *_) = memory.plan(300.0)[0].prompts
    assert (prompt.new_tokens, prompt.tokens) == (SIZE, 2001 * SIZE)


def test_to_forget_takes_no_look_at_all_for_each_block() -> None:
    memory = deep(3000)
    before = len(memory)
    memory._config = config(memory_bytes=1 << 18)
    work = lines_run(lambda: memory._shrink(200.0))
    assert len(memory) < before / 2
    assert work / before < 60
    assert all(not node.parent or node.parent in memory._nodes for node in memory._nodes.values())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.booleans()), max_size=40),
    st.integers(1, 120),
    st.integers(1, 40),
)
def test_a_plan_names_what_is_new_and_is_within_its_bounds(
    tree: list[tuple[int, int, bool]], tokens_max: int, chunk_tokens: int
) -> None:
    memory = HotPrefixes(config(tokens_max=tokens_max, chunk_tokens=chunk_tokens))
    for block, (parent, size, _) in enumerate(tree, 1):
        memory.stored(parent % block, [block], [[block] * size], 10.0 * block)
    memory.removed(block for block, (_, _, gone) in enumerate(tree, 1) if gone)
    has = {block for block, (_, _, gone) in enumerate(tree, 1) if not gone}
    for block in has & set(memory._nodes):
        assert memory._nodes[block].stored
    prompts = [prompt for chunk in memory.plan(500.0) for prompt in chunk.prompts]
    for prompt in prompts:
        at, new, tokens = prompt.block, 0, 0
        while at:
            parent, size, _ = tree[at - 1]
            tokens += size
            new += size if at not in has else 0
            has.add(at)
            at = parent % at
        assert (prompt.tokens, prompt.new_tokens) == (tokens, new)
        assert new > 0
    assert sum(prompt.new_tokens for prompt in prompts) <= tokens_max
    assert sum(prompt.tokens for prompt in prompts) <= 8 * tokens_max


def test_a_long_prompt_that_is_hot_as_a_whole_is_sent_as_one() -> None:
    memory = deep(100, tokens_max=1 << 20, chunk_tokens=64)
    (chunk,) = memory.plan(200.0)
    assert [prompt.tokens for prompt in chunk.prompts] == [101 * SIZE]


def test_of_one_that_is_too_long_the_beginning_is_sent() -> None:
    memory = deep(100, tokens_max=42)
    (chunk,) = memory.plan(200.0)
    assert [prompt.tokens for prompt in chunk.prompts] == [10 * SIZE]


def test_a_prompt_that_was_forgotten_or_came_meanwhile_is_not_sent() -> None:
    engine = Engine(memory_bytes=1 << 16)
    for beginning in (SYSTEM, OTHER):
        engine.prompt(*beginning)
        engine.prompt(*beginning, *OTHER)
    engine.restart()
    first, second = (p for chunk in engine.memory.plan(engine.now_s) for p in chunk.prompts)
    engine.prompt(*(engine.memory.token_ids(first) or ()))
    assert engine.memory.token_ids(first) is None
    for number in range(2000):
        engine.prompt(*[1000 + number] * SIZE, *[1] * SIZE, after_s=600.0)
        engine.prompt(*[1000 + number] * SIZE, *[2] * SIZE, after_s=600.0)
    assert engine.memory.token_ids(second) is None


def test_a_request_that_goes_on_with_its_answer_hits_nothing() -> None:
    engine = Engine()
    text = list(SYSTEM)
    engine.prompt(*text)
    for token in range(400, 410):  # its answer, block by block
        text += [token] * SIZE
        engine.prompt(*text, after_s=QUIET_S / 10)
    engine.restart()
    assert engine.memory.plan(engine.now_s) == []


def test_the_next_turn_of_a_conversation_hits_all_before_it() -> None:
    engine = Engine()
    engine.prompt(*SYSTEM)
    engine.prompt(*SYSTEM, *OTHER, after_s=QUIET_S)
    engine.restart()
    assert engine.sent() == [SYSTEM]


def test_a_hit_counts_less_with_time() -> None:
    engine = Engine(half_life_s=100.0, tokens_max=8)
    for question in range(4):
        engine.prompt(*OTHER, *[200 + question] * SIZE, after_s=1.0)
    for question in range(2):
        engine.prompt(*SYSTEM, *[300 + question] * SIZE, after_s=300.0)
    engine.restart()
    assert engine.sent() == [SYSTEM]


def test_what_is_sent_by_ourselves_heats_nothing() -> None:
    engine = Engine()
    for question in range(3):
        engine.prompt(*SYSTEM, *[200 + question] * SIZE)
    engine.restart()
    first = [engine.memory._heat(node, engine.now_s) for node in engine.memory._nodes.values()]
    engine.sent()
    again = [engine.memory._heat(node, engine.now_s) for node in engine.memory._nodes.values()]
    assert again == first


def test_what_is_there_already_is_not_sent() -> None:
    engine = Engine()
    for question in range(3):
        engine.prompt(*SYSTEM, *[200 + question] * SIZE)
    assert engine.memory.plan(engine.now_s) == []


def test_memory_is_bounded_and_the_coldest_is_forgotten() -> None:
    engine = Engine(memory_bytes=1 << 16)
    for question in range(2000):
        engine.prompt(*SYSTEM, *[1000 + question] * SIZE, after_s=1.0)
    assert engine.memory.forgotten_total > 1000
    assert 150 < len(engine.memory) <= (1 << 16) // 270
    engine.restart()
    assert engine.sent() == [SYSTEM]


def test_memory_is_bounded_too_where_each_prompt_ends_with_what_no_prompt_can_have() -> None:
    memory = HotPrefixes(config(memory_bytes=1 << 16))
    for first in range(1, 10_000, 10):
        blocks = range(first, first + 10)
        memory.stored(0, blocks, [[1] * SIZE] * 9 + [[-1] * SIZE], float(first))
    assert memory.forgotten_total > 0
    assert len(memory) < (1 << 16) // 270


def test_what_depends_on_more_than_tokens_is_never_remembered() -> None:
    memory = HotPrefixes(config())
    feed = KvFeed(BlockDirectory(), "r", 0, memory)
    feed.apply(
        [
            BlockStored([1, 2], None, [5] * 8, 4, "GPU", extra_keys=[("salt",), None]),
            BlockStored([3], 2, [6] * 4, 4, "GPU"),  # behind it
            BlockStored([4], None, [7] * 4, 4, "GPU", lora_name="adapter"),
            BlockStored([5], None, [8] * 4, 4, "CPU"),
        ]
    )
    assert len(memory) == 0
    feed.apply([BlockStored([6], None, [9] * 4, 4, "GPU")])
    assert len(memory) == 1
    feed.now_s = 60.0
    feed.apply([BlockStored([7], 6, [10] * 4, 4, "GPU")])
    assert memory.heat_ratio(60.0) == 1.0
    feed.apply([BlockRemoved([6], "GPU")])
    assert memory.heat_ratio(60.0) == 0.0
    feed.apply([AllBlocksCleared()])
    assert [chunk.new_tokens for chunk in memory.plan(60.0)] == [4]


def test_a_warm_cache_serves_more_of_what_comes_next() -> None:
    """A hundred beginnings of Zipf popularity: the window after a restart, cold and warm."""
    draw = random.Random(7)
    beginnings = [tuple(draw.randrange(1, 50_000) for _ in range(64)) for _ in range(100)]
    weights = [1 / (1 + rank) for rank in range(100)]

    def serve(engine: Engine, count: int) -> int:
        hits = 0
        for _ in range(count):
            (beginning,) = draw.choices(beginnings, weights)
            question = [draw.randrange(1, 50_000) for _ in range(8)]
            hits += engine.prompt(*beginning, *question, after_s=1.0)
        return hits

    hits = {}
    for warm in (False, True):
        draw.seed(3)
        engine = Engine(tokens_max=2000)
        serve(engine, 1000)
        engine.restart()
        if warm:
            assert sum(map(len, set(engine.sent()))) <= 100 * 64
        hits[warm] = serve(engine, 50)
    assert hits[True] > 1.3 * hits[False]


@pytest.mark.parametrize(
    "settings", [{"memory_bytes": 1}, {"heat_ratio": 1.5}, {"half_life_s": 0.0}], ids=str
)
def test_bad_bounds_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"warm_up.{next(iter(settings))}"):
        config(**settings)
