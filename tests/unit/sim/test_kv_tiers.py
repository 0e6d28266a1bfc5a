"""KV tiers: what they keep, and what a load costs, by hand."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import KvTierConfig
from mileage.sim.make_engine import make_single
from mileage.sim.sequence import GONE, LOADING, NEW, Sequence
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.01, 1e-4, 0.0, 1e-3, 0.0))
"""A step takes 10 ms, 0.1 ms for each that decodes, and 1 ms for each prompt token."""
_HOST = KvTierConfig(blocks=100, block_load_s=0.002, latency_s=0.001)


def _config(*tiers: KvTierConfig, blocks: int = 12, **keys: object) -> EngineConfig:
    return EngineConfig(
        kv_blocks=blocks,
        running_max=8,
        step_tokens_max=256,
        block_tokens=4,
        kv_tiers=tiers,
        **keys,  # type: ignore[arg-type]
    )


def _prompt(number: int, *keys: int, output: int = 1) -> Sequence:
    return Sequence(number, len(keys) * 4 + 1, output, keys, 4)


def _one_by_one(config: EngineConfig, prompts: list[Sequence]) -> list[float]:
    """Each comes a second after the one before; seconds to their first tokens."""
    run_engine(config, _TABLE, [(float(i), each) for i, each in enumerate(prompts)], check=True)
    return [each.first_token_s - i for i, each in enumerate(prompts)]


def test_a_hit_in_host_memory_costs_its_load_and_not_its_prefill() -> None:
    again = _prompt(2, *range(10))
    ttft_s = _one_by_one(
        _config(_HOST), [_prompt(0, *range(10)), _prompt(1, *range(100, 110)), again]
    )
    assert ttft_s[:2] == pytest.approx([0.01 + 41e-3] * 2)
    # The second has overwritten nine of the first's ten blocks, the last ones first.
    assert again.cached_tokens == 40
    assert ttft_s[2] == pytest.approx((0.001 + 9 * 0.002) + (0.01 + 1e-3))


def test_what_the_gpu_has_is_not_loaded() -> None:
    again = _prompt(1, *range(10))
    ttft_s = _one_by_one(_config(_HOST), [_prompt(0, *range(10)), again])
    assert ttft_s[1] == pytest.approx(0.011)


def test_a_block_is_lost_where_the_tier_is_full_and_the_next_tier_has_it() -> None:
    small = KvTierConfig(blocks=4, block_load_s=0.002)
    far = KvTierConfig(blocks=100, block_load_s=0.02, latency_s=0.1)
    prompts = [tuple(range(10)), tuple(range(100, 110)), tuple(range(10))]
    one, two = (
        _one_by_one(_config(*tiers), [_prompt(i, *keys) for i, keys in enumerate(prompts)])
        for tiers in ((small,), (small, far))
    )
    # Nine blocks left the GPU from the tail: of these the tier kept the last four, 4 to 1.
    assert one[2] == pytest.approx(4 * 0.002 + 0.01 + (41 - 20) * 1e-3)
    assert two[2] == pytest.approx((0.1 + 5 * 0.02) + 0.011)


def test_blocks_are_stored_at_once_where_the_tier_asks_for_all_that_is_computed() -> None:
    tier = KvTierConfig(blocks=100, block_load_s=0.0, store="computed")
    engine = make_single(_config(tier), _TABLE, Random(1))
    assert engine.add(_prompt(0, 1, 2, 3), 0.0)
    engine.finish_steps(0.0)
    engine.begin(0.0)
    other = _prompt(1, 1, 2, 3)
    assert engine.tiers.follow(other, 0) == 3  # type: ignore[attr-defined]


def test_others_run_while_blocks_are_loaded() -> None:
    slow = KvTierConfig(blocks=100, block_load_s=0.1)
    engine = make_single(_config(slow, blocks=14), _TABLE, Random(1))
    first, second = _prompt(0, *range(10)), _prompt(1, *range(100, 110))
    again, other = _prompt(2, *range(10)), _prompt(3, 777, output=5)
    coming = [(0.0, first), (1.0, second), (2.0, again), (2.1, other)]
    seen = []
    while coming or engine.due_s < math.inf:
        if coming and coming[0][0] <= engine.due_s:
            at, sequence = coming.pop(0)
            engine.add(sequence, at)
            continue
        now_s = engine.due_s
        engine.finish_steps(now_s)
        engine.begin(now_s)
        seen.append((again.state, other.state))
    assert other.first_token_s == pytest.approx(2.1 + 0.01 + 5e-3)
    assert any(state == LOADING for state, _ in seen)
    # Seven of its ten blocks were overwritten.
    assert other.finished_s == pytest.approx(2.115 + 4 * 0.0101)
    assert again.first_token_s == pytest.approx(2.0 + 7 * 0.1 + 0.011)
    assert engine.load_tokens == 28


def test_a_load_that_is_complete_ends_a_stretch_with_the_step_in_progress() -> None:
    slow = KvTierConfig(blocks=100, block_load_s=0.1)
    again, other = _prompt(2, *range(10)), _prompt(3, output=12)
    run_engine(
        _config(slow, blocks=15),
        _TABLE,
        [
            (0.0, _prompt(0, *range(10))),
            (1.0, _prompt(1, *range(100, 110))),
            (2.0, again),
            (2.53, other),
        ],
    )
    ready_s, decode_s = 2.0 + 6 * 0.1, 0.0101  # five of its ten blocks were still there
    begun_s = 2.53 + 0.011
    steps = math.ceil((ready_s - begun_s) / decode_s)
    assert 1 < steps < 11
    assert again.first_token_s == pytest.approx(begun_s + steps * decode_s + decode_s + 2e-3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_block_is_lost_whoever_comes_or_leaves(seed: int) -> None:
    random = Random(seed)
    tier = KvTierConfig(
        blocks=random.choice((3, 30, 300)),
        block_load_s=random.choice((0.0, 1e-3, 0.05)),
        store=random.choice(("evicted", "computed")),
    )
    config = _config(tier, blocks=random.choice((30, 60)))
    engine = make_single(config, _TABLE, Random(1))
    events: list[tuple[float, int, Sequence]] = []
    now_s = 0.0
    for number in range(40):
        now_s += random.expovariate(20.0)
        stem = random.randint(0, 3) * 100
        keys = tuple(range(stem, stem + random.randint(1, 15)))
        sequence = Sequence(number, len(keys) * 4 + 1, random.randint(1, 50), keys, 4)
        events.append((now_s, 0, sequence))
        if random.random() < 0.3:
            events.append((now_s + random.expovariate(5.0), 1, sequence))
    events.sort(key=lambda event: event[0])
    while events or engine.due_s < math.inf:
        if events and events[0][0] <= engine.due_s:
            at, what, sequence = events.pop(0)
            if what == 0:
                engine.add(sequence, at)
            elif sequence.state not in (NEW, GONE):
                engine.abort(sequence, at)
            continue
        now_s = engine.due_s
        engine.finish_steps(now_s)
        engine.begin(now_s)
        engine.pool.check()
        assert len(engine.running) <= config.running_max
    assert engine.pool.free == config.kv_blocks
    assert engine.queued == 0


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        pytest.param({"blocks": 0, "block_load_s": 0.1}, "blocks", id="no block"),
        pytest.param({"blocks": 1, "block_load_s": -0.1}, "block_load_s", id="negative"),
        pytest.param({"blocks": 1, "block_load_s": 0.1, "store": "all"}, "store", id="unknown"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"engine\.kv_tiers\.{named}"):
        KvTierConfig(**keys)  # type: ignore[arg-type]
