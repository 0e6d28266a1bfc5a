"""Static batches and contiguous KV caches, the baselines: completion times by hand."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import StaticBatchConfig
from mileage.sim.make_engine import make_single
from mileage.sim.sequence import GONE, NEW, Sequence
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.01, 1e-3, 1e-5, 1e-3, 0.0))
"""10 ms, 1 ms for each that decodes and each prompt token, 0.01 ms for each token of context."""


def _config(size: int = 3, delay_s: float = 0.5, **keys: object) -> EngineConfig:
    return EngineConfig(
        static_batch=StaticBatchConfig(size=size, delay_s=delay_s),
        **{"kv_blocks": 500, "running_max": 8, "step_tokens_max": 64} | keys,  # type: ignore[arg-type]
    )


def _decode_s(context: int, rows: int) -> float:
    return 0.01 + rows * 1e-3 + context * 1e-5


def test_a_full_batch_begins_at_once_and_all_of_it_ends_with_the_longest() -> None:
    short, long, middle = Sequence(0, 10, 2), Sequence(1, 20, 6), Sequence(2, 12, 4)
    run_engine(_config(), _TABLE, [(0.0, short), (0.1, long), (0.2, middle)], check=True)
    first_s = 0.2 + 0.01 + 42e-3
    steps_s = [_decode_s(42 + 3 * step, 3) for step in range(5)]
    for each in (short, long, middle):
        assert each.first_token_s == pytest.approx(first_s)
        assert each.finished_s == pytest.approx(first_s + sum(steps_s))
    # What a client sees of its stream ends with its own last token.
    assert short.itl_mean_s == pytest.approx(steps_s[0])
    assert middle.itl_p99_s == pytest.approx(steps_s[2])
    assert long.itl_mean_s == pytest.approx(sum(steps_s) / 5)


def test_a_batch_that_is_not_full_begins_when_its_first_has_waited() -> None:
    one, two, late = Sequence(0, 10, 1), Sequence(1, 10, 1), Sequence(2, 10, 1)
    run_engine(_config(), _TABLE, [(0.0, one), (0.4, two), (0.51, late)])
    assert one.finished_s == pytest.approx(0.5 + 0.03)
    assert two.finished_s == pytest.approx(0.5 + 0.03)
    assert late.finished_s == pytest.approx(0.51 + 0.5 + 0.02)


def test_nobody_joins_a_batch_and_the_next_one_begins_at_its_end() -> None:
    sequences = [Sequence(i, 10, 20 if i == 0 else 2) for i in range(5)]
    run_engine(_config(size=2), _TABLE, [(0.0, each) for each in sequences])
    ends = [each.finished_s for each in sequences]
    assert ends[0] == ends[1]
    assert sequences[2].first_token_s == pytest.approx(ends[0] + 0.03)
    assert ends[2] == ends[3]
    # The last one is alone, and has waited longer than the delay or waits for the rest of it.
    assert sequences[4].first_token_s == pytest.approx(max(ends[2], 0.5) + 0.02)


def test_prompts_beyond_a_step_are_computed_before_anything_decodes() -> None:
    first, second = Sequence(0, 50, 3), Sequence(1, 50, 3)
    run_engine(_config(size=2), _TABLE, [(0.0, first), (0.0, second)])
    both_s = (0.01 + 64e-3) + (0.01 + 36e-3)
    assert first.first_token_s == second.first_token_s == pytest.approx(both_s)


def test_a_batch_has_as_many_as_fit_until_their_ends() -> None:
    sequences = [Sequence(i, 16, 33) for i in range(3)]  # three blocks each in the end
    run_engine(_config(kv_blocks=8), _TABLE, [(0.0, each) for each in sequences], check=True)
    assert sequences[0].finished_s == sequences[1].finished_s < sequences[2].first_token_s


@pytest.mark.parametrize("static", [True, False])
def test_contiguous_caches_run_as_many_as_have_room_for_the_longest_context(static: bool) -> None:
    config = EngineConfig(
        kv_blocks=16,
        running_max=8,
        step_tokens_max=64,
        kv_layout="contiguous",
        context_tokens_max=100,
        static_batch=StaticBatchConfig(size=8, delay_s=0.0) if static else None,
    )
    engine = make_single(config, _TABLE, Random(1))
    assert engine.fits(Sequence(0, 90, 11))
    assert not engine.fits(Sequence(0, 90, 12))
    # 256 tokens of cache have two slots; paged, all six would run.
    sequences = [Sequence(i, 10, 5) for i in range(6)]
    run_engine(config, _TABLE, [(0.0, each) for each in sequences], check=True)
    ends = [each.finished_s for each in sequences]
    length_s = 0.03 + sum(_decode_s(20 + 2 * step, 2) for step in range(4))
    assert ends == pytest.approx([length_s * (1 + i // 2) for i in range(6)])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whoever_leaves_all_others_end_and_no_block_is_lost(seed: int) -> None:
    random = Random(seed)
    layout = random.choice(({}, {"kv_layout": "contiguous", "context_tokens_max": 130}))
    size = random.choice((1, 4, 8))
    config = _config(size, random.choice((0.0, 0.2)), kv_blocks=random.choice((20, 60)), **layout)
    engine = make_single(config, _TABLE, Random(1))
    events: list[tuple[float, int, Sequence]] = []
    now_s = 0.0
    for number in range(30):
        now_s += random.expovariate(random.choice((3.0, 30.0)))
        sequence = Sequence(number, random.randint(1, 90), random.randint(0, 40))
        events.append((now_s, 0, sequence))
        if random.random() < 0.4:
            events.append((now_s + random.expovariate(3.0), 1, sequence))
    events.sort(key=lambda event: event[0])
    left = {sequence for _, what, sequence in events if what}
    while events or engine.due_s < math.inf:
        if events and events[0][0] <= engine.due_s:
            at, what, sequence = events.pop(0)
            if what == 0:
                engine.add(sequence, at)
            elif sequence.state not in (NEW, GONE):
                engine.abort(sequence, at)
            continue
        assert engine.due_s >= now_s or events
        now_s = engine.due_s
        engine.finish_steps(now_s)
        for sequence in engine.done:
            assert sequence.produced == sequence.output_tokens
            left.discard(sequence)
        engine.begin(now_s)
        engine.pool.check()
    assert engine.finished == 30 - len(left)
    assert not engine.running
    assert engine.pool.free == engine.pool.blocks
    assert engine.preemptions == 0


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        pytest.param({"kv_layout": "contiguous"}, "context_tokens_max", id="no context"),
        pytest.param({"context_tokens_max": 8}, "context_tokens_max", id="context of paged"),
        pytest.param({"kv_layout": "other"}, "kv_layout", id="unknown layout"),
        pytest.param(
            {"kv_layout": "contiguous", "context_tokens_max": 1601}, "context_tokens_max", id="long"
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"engine\.{named}"):
        EngineConfig(kv_blocks=100, **keys)  # type: ignore[arg-type]
