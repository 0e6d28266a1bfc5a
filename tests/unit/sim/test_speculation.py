"""Speculative decoding: tokens per step in closed form, what a step costs, and blocks."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import SpeculationConfig
from mileage.sim.sequence import GONE, Sequence
from tests.support.engine_host import linear_table, run_engine
from tests.support.group_host import run_any

_TABLE = linear_table((0.01, 1e-3, 1e-6, 1e-4, 0.0), requests_max=256)


def _config(**keys: object) -> EngineConfig:
    own = {key: keys.pop(key) for key in list(keys) if key in SpeculationConfig.__struct_fields__}
    return EngineConfig(
        speculation=SpeculationConfig(**own),  # type: ignore[arg-type]
        **{"kv_blocks": 4000, "running_max": 8, "step_tokens_max": 256} | keys,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("draft", "ratio"), [(1, 0.8), (3, 0.7), (5, 0.5), (4, 0.95)])
def test_a_step_yields_the_mean_of_a_truncated_geometric_distribution(
    draft: int, ratio: float
) -> None:
    config = _config(draft_tokens=draft, acceptance_ratio=ratio)
    one = Sequence(0, 10, 40_001)
    engine = run_engine(config, _TABLE, [(0.0, one)])
    mean = (1 - ratio ** (draft + 1)) / (1 - ratio)
    assert 40_000 / (engine.batch.steps - 1) == pytest.approx(mean, rel=0.02)
    assert config.speculation is not None
    assert config.speculation.tokens_mean == pytest.approx(mean)


@pytest.mark.parametrize(
    ("ratio", "tokens"),
    [pytest.param(1.0, 4.0, id="all accepted"), pytest.param(0.0, 1.0, id="none accepted")],
)
def test_certain_acceptance_is_exact(ratio: float, tokens: float) -> None:
    one = Sequence(0, 10, 101)
    engine = run_engine(_config(draft_tokens=3, acceptance_ratio=ratio), _TABLE, [(0.0, one)])
    assert engine.batch.steps == 1 + math.ceil(100 / tokens)


def test_expected_acceptance_gives_every_request_the_mean_without_a_lot() -> None:
    config = _config(draft_tokens=2, acceptance_ratio=0.5, acceptance="expected")  # 1.75 a step
    sequences = [Sequence(i, 10, 71) for i in range(3)]
    engine = run_engine(config, _TABLE, [(0.0, each) for each in sequences])
    assert engine.batch.steps == 1 + 40
    assert len({each.finished_s for each in sequences}) == 1


def test_a_step_costs_its_rows_one_reading_of_the_contexts_and_the_proposals() -> None:
    config = _config(draft_tokens=3, acceptance_ratio=1.0, draft_step_s=0.002)
    one, two = Sequence(0, 100, 9), Sequence(1, 60, 9)
    run_engine(config, _TABLE, [(0.0, one), (0.0, two)])
    first_s = 0.01 + 160e-4
    steps_s = [0.01 + 8 * 1e-3 + (160 + 8 * step) * 1e-6 + 3 * 0.002 for step in range(2)]
    assert one.first_token_s == pytest.approx(first_s)
    assert one.finished_s == pytest.approx(first_s + sum(steps_s))
    assert one.itl_mean_s == pytest.approx(sum(steps_s) / 2)


def test_proposed_tokens_take_their_part_of_a_steps_budget() -> None:
    config = _config(draft_tokens=3, acceptance_ratio=0.0, step_tokens_max=32)
    decoding, prompt = Sequence(0, 10, 50), Sequence(1, 56, 1)
    engine = run_engine(config, _TABLE, [(0.0, decoding), (0.05, prompt)])
    assert prompt.state == GONE
    # 28 tokens of the prompt fit beside the four rows of the other one: two steps.
    mixed_s = 0.01 + 32e-4 + 4e-3
    assert decoding.itl_p99_s == pytest.approx(mixed_s, abs=1e-4)
    assert engine.prefill_tokens == 66


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_block_and_no_token_is_lost_whoever_comes_leaves_or_gives_way(seed: int) -> None:
    random = Random(seed)
    layout = random.choice(({}, {}, {"kv_layout": "contiguous", "context_tokens_max": 170}))
    config = _config(
        draft_tokens=random.choice((1, 3, 20)),
        acceptance_ratio=random.random(),
        acceptance=random.choice(("drawn", "expected")),
        kv_blocks=random.choice((11, 30, 100)),
        running_max=random.choice((1, 4, 8)),
        **layout,
    )
    arrivals, leaves, now_s = [], [], 0.0
    for number in range(40):
        now_s += random.expovariate(random.choice((5.0, 50.0)))
        prompt = random.randint(1, 100)
        keys = tuple(range(random.randint(0, 1) * 50, 100))[: prompt // 16]
        sequence = Sequence(number, prompt, random.randint(0, 70), keys, 16)
        arrivals.append((now_s, sequence))
        if random.random() < 0.3:
            leaves.append((now_s + random.expovariate(4.0), sequence))
    engine, first, done = run_any(config, _TABLE, arrivals, leaves)
    left = {each for _, each in leaves} - set(done)
    assert len(done) == len(set(done)) == 40 - len(left)
    assert all(each.produced == each.output_tokens for each in done)
    assert set(done) <= set(first)
    (member,) = engine.members
    assert member.pool.free == member.pool.blocks
    assert member.batch.count == member.batch.context == 0


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        pytest.param({"draft_tokens": 0}, "speculation.draft_tokens", id="nothing proposed"),
        pytest.param({"acceptance_ratio": 1.1}, "speculation.acceptance_ratio", id="above 1"),
        pytest.param({"acceptance": "x"}, "speculation.acceptance", id="unknown"),
        pytest.param({"draft_tokens": 40}, "running_max", id="more rows than a step has tokens"),
    ],
)
def test_settings_that_cannot_be_are_refused(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"engine\.{named}"):
        _config(**keys)


def test_a_table_without_the_rows_of_proposed_tokens_is_refused() -> None:
    small = linear_table((0.01, 1e-3, 1e-6, 1e-4, 0.0), requests_max=31)
    with pytest.raises(ConfigError, match="32 tokens"):
        run_engine(_config(draft_tokens=3), small, [])
