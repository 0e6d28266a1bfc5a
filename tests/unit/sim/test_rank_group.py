"""Data-parallel ranks: every step takes as long as that of the slowest rank, by hand."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import KvTierConfig
from mileage.sim.sequence import GONE, Sequence
from tests.support.engine_host import linear_table, run_engine
from tests.support.group_host import run_any

_TABLE = linear_table((0.01, 1e-3, 1e-5, 1e-3, 0.0))
_CONFIG = EngineConfig(kv_blocks=400, running_max=8, step_tokens_max=256, dp_ranks=2)


def _decode_s(rows: int, context: int) -> float:
    return 0.01 + rows * 1e-3 + context * 1e-5


def test_a_step_takes_as_long_as_that_of_the_slowest_rank() -> None:
    short, long = Sequence(0, 10, 6), Sequence(1, 100, 6)
    run_any(_CONFIG, _TABLE, [(0.0, short), (0.0, long)])
    # As if both ranks had the longer one.
    first_s = 0.01 + 200e-3
    steps_s = sum(_decode_s(2, 2 * (100 + step)) for step in range(5))
    for each in (short, long):
        assert each.first_token_s == pytest.approx(first_s)
        assert each.finished_s == pytest.approx(first_s + steps_s)


def test_a_request_that_comes_joins_at_the_end_of_the_step_of_all() -> None:
    one, two = Sequence(0, 10, 50), Sequence(1, 10, 2)
    run_any(_CONFIG, _TABLE, [(0.0, one), (0.1, two)])
    now_s, steps = 0.03, 0
    while now_s < 0.1:
        now_s += _decode_s(2, 2 * (10 + steps))
        steps += 1
    assert two.first_token_s == pytest.approx(now_s + 0.01 + 20e-3)  # the prompt is the slower one


def test_equal_loads_on_all_ranks_fare_as_one_engine_with_all_of_it() -> None:
    pairs = [(0.0, 20, 30), (0.4, 50, 10), (0.5, 31, 77)]
    ranked = [[Sequence(0, p, o), Sequence(1, p, o)] for _, p, o in pairs]
    whole = [[Sequence(0, p, o), Sequence(1, p, o)] for _, p, o in pairs]
    times = [(at, each) for (at, _, _), two in zip(pairs, ranked, strict=True) for each in two]
    run_any(_CONFIG, _TABLE, times)
    times = [(at, each) for (at, _, _), two in zip(pairs, whole, strict=True) for each in two]
    run_engine(msgspec.structs.replace(_CONFIG, dp_ranks=1), _TABLE, times)
    for ours, theirs in zip(ranked, whole, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.finished_s == pytest.approx(other.finished_s)
            assert one.itl_p99_s == pytest.approx(other.itl_p99_s)


def test_a_rank_has_its_share_of_the_blocks_and_no_more() -> None:
    engine, _, _ = run_any(_CONFIG, _TABLE, [(0.0, Sequence(0, 10, 2))])
    assert [member.pool.blocks for member in engine.members] == [200, 200]
    assert engine.fits(Sequence(0, 200 * 16, 1))
    assert not engine.fits(Sequence(0, 200 * 16 + 1, 1))


def test_a_load_on_one_rank_does_not_wait_for_the_other_ranks_to_run_dry() -> None:
    tier = KvTierConfig(blocks=100, block_load_s=0.1)
    config = msgspec.structs.replace(_CONFIG, kv_blocks=26, kv_tiers=(tier,))
    keys = tuple(range(10))
    first, other = Sequence(0, 161, 1, keys, 16), Sequence(1, 161, 1, tuple(range(50, 60)), 16)
    again, busy = Sequence(2, 161, 1, keys, 16), Sequence(3, 5, 190)
    # All but the last come alone, and go to the first rank.
    run_any(config, _TABLE, [(0.0, first), (1.0, other), (2.0, again), (2.01, busy)])
    blocks = round((again.first_token_s - 2.0) / 0.1 - 0.2)
    assert 1 <= blocks <= 9
    assert again.first_token_s < 2.0 + blocks * 0.1 + 0.05
    assert busy.finished_s > again.finished_s + 0.5


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whoever_leaves_all_others_end_and_no_block_is_lost(seed: int) -> None:
    random = Random(seed)
    ranks = random.choice((2, 3, 8))
    config = EngineConfig(
        kv_blocks=ranks * random.choice((12, 30, 100)),
        running_max=ranks * random.choice((1, 4)),
        step_tokens_max=256,
        dp_ranks=ranks,
        noise_ratio=random.choice((0.0, 0.1)),
    )
    arrivals, leaves, now_s = [], [], 0.0
    for number in range(40):
        now_s += random.expovariate(random.choice((5.0, 50.0)))
        sequence = Sequence(number, random.randint(1, 100), random.randint(0, 60))
        arrivals.append((now_s, sequence))
        if random.random() < 0.4:
            leaves.append((now_s + random.expovariate(4.0), sequence))
    engine, first, done = run_any(config, _TABLE, arrivals, leaves)
    left = {each for _, each in leaves} - set(done)
    assert len(done) == len(set(done)) == 40 - len(left)
    assert len(first) == len(set(first))
    assert all(each.state == GONE and each.produced == each.output_tokens for each in done)
    for each in done:
        if each.output_tokens > 1:
            whole_s = each.finished_s - each.first_token_s
            assert each.itl_mean_s * (each.output_tokens - 1) == pytest.approx(whole_s)
            assert each.itl_p99_s >= each.itl_mean_s * (1 - 1e-9)
    for member in engine.members:
        assert member.pool.free == member.pool.blocks
        assert not member.running


def test_more_ranks_than_requests_that_run_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.running_max.*dp_ranks"):
        EngineConfig(kv_blocks=100, running_max=2, dp_ranks=4)
