"""Whatever comes, leaves or gives way: an engine neither loses nor makes up tokens or blocks."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import DECODING, GONE, NEW, Sequence
from mileage.sim.step_math import blocks_of
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 1e-4, 2e-6, 5e-5, 1e-8), (0.002, 4e-4, 1e-6, 6e-5, 0.0))


def _draw(random: Random) -> tuple[EngineConfig, list[tuple[float, Sequence]], dict[int, float]]:
    config = EngineConfig(
        kv_blocks=random.choice((8, 30, 200)),
        running_max=random.choice((1, 4, 32)),
        step_tokens_max=random.choice((32, 128)),
        block_tokens=random.choice((4, 16)),
        long_prefill_tokens_max=random.choice((None, 16)),
        prefix_cache=random.random() < 0.5,
        noise_ratio=random.choice((0.0, 0.1)),
    )
    most = config.kv_blocks * config.block_tokens
    arrivals, leaves, now_s = [], {}, 0.0
    for index in range(40):
        now_s += random.expovariate(20.0)
        prompt = min(random.randint(1, 200), most - 1)
        output = min(random.randint(0, 100), most - prompt + 1)
        stem = random.randint(0, 2) * 100
        keys = tuple(range(stem, stem + prompt // config.block_tokens))
        arrivals.append((now_s, Sequence(index, prompt, output, keys, config.block_tokens)))
        if random.random() < 0.3:
            leaves[index] = now_s + random.expovariate(2.0)
    return config, arrivals, leaves


def _blocks(engine: Engine, now_s: float) -> int:
    """What every request has, counted one by one; only where they share nothing."""
    done = engine.steps_done(now_s)
    blocks = 0
    for sequence in engine.running:
        tokens = sequence.computed
        if sequence.state == DECODING:
            # The next step's block is taken with the step before it is over.
            tokens = sequence.base + engine.batch.steps + max(1, done)
        blocks += blocks_of(tokens, engine.config.block_tokens)
    return blocks


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_tokens_and_blocks_are_conserved(seed: int) -> None:
    random = Random(seed)
    config, arrivals, leaves = _draw(random)
    engine = Engine(config, _TABLE, Random(1))
    events = [(at, "come", each) for at, each in arrivals]
    events += [(leaves[each.id], "leave", each) for _, each in arrivals if each.id in leaves]
    events.sort(key=lambda event: event[0])
    ended: set[int] = set()
    now_s = 0.0
    while events or engine.due_s < math.inf:
        if events and events[0][0] <= engine.due_s:
            at, what, sequence = events.pop(0)
            assert at >= now_s
            now_s = at
            if what == "come":
                engine.add(sequence, now_s)
            elif sequence.state not in (NEW, GONE):
                engine.abort(sequence, now_s)
        else:
            assert engine.due_s >= now_s
            now_s = engine.due_s
            engine.finish_steps(now_s)
            ended.update(each.id for each in engine.done)
            engine.begin(now_s)
        engine.pool.check()
        assert len(engine.running) <= config.running_max
        assert 0 <= engine.blocks_used(now_s) <= config.kv_blocks
        if not config.prefix_cache and engine.steps_done(now_s) and not engine._chunks:
            assert engine.blocks_used(now_s) == _blocks(engine, now_s)
    assert not engine.running
    assert not engine.waiting
    assert engine.pool.free == config.kv_blocks
    assert engine.batch.count == engine.batch.context == 0
    for _, sequence in arrivals:
        assert sequence.state == GONE
        if sequence.id in ended:
            assert sequence.produced == sequence.output_tokens
            assert sequence.finished_s >= sequence.first_token_s
        else:
            assert sequence.id in leaves
            assert sequence.produced <= sequence.output_tokens
    assert engine.output_tokens == sum(sequence.produced for _, sequence in arrivals)
    assert engine.finished == len(ended)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_a_stretch_that_is_cut_ends_where_it_would_have_passed(steps: int) -> None:
    """That somebody comes changes nothing about the steps before."""
    config = EngineConfig(kv_blocks=1000, running_max=2, step_tokens_max=64)
    alone = Engine(config, _TABLE, Random(1))
    first = Sequence(1, 10, 100)
    alone.add(first, 0.0)
    for _ in range(2):
        now_s = alone.due_s
        alone.finish_steps(now_s)
        alone.begin(now_s)
    begun_s = now_s
    times = [_TABLE.step_s(1, 10 + i) for i in range(100)]
    inside_s = begun_s + sum(times[: steps - 1]) + times[steps - 1] / 2
    assert alone.add(Sequence(2, 10, 1), inside_s)
    assert alone.due_s == pytest.approx(begun_s + sum(times[:steps]))
