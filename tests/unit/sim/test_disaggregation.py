"""Prefill and decode apart: what is handed over, when, and what it costs, by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import AdaptersConfig, DisaggregationConfig
from mileage.sim.sequence import GONE, Sequence
from mileage.sim.step_timer import gap_figures
from tests.support.engine_host import linear_table
from tests.support.group_host import run_any

_TABLE = linear_table((0.01, 1e-3, 0.0, 1e-3, 0.0))
"""10 ms, and 1 ms for each that decodes and each prompt token."""


def _config(
    prefill: int = 1,
    decode: int = 1,
    token_s: float = 1e-3,
    latency_s: float = 0.05,
    **keys: object,
) -> EngineConfig:
    return EngineConfig(
        disaggregation=DisaggregationConfig(
            prefill_engines=prefill,
            decode_engines=decode,
            transfer_token_s=token_s,
            transfer_latency_s=latency_s,
        ),
        **{"kv_blocks": 500, "running_max": 8, "step_tokens_max": 64} | keys,  # type: ignore[arg-type]
    )


def test_the_first_token_comes_after_prefill_and_transfer_and_the_rest_step_by_step() -> None:
    one = Sequence(0, 40, 5)
    _, first, done = run_any(_config(), _TABLE, [(1.0, one)])
    ttft_s = (0.01 + 40e-3) + (0.05 + 40e-3)
    assert one.first_token_s == pytest.approx(1.0 + ttft_s)
    assert one.finished_s == pytest.approx(1.0 + ttft_s + 4 * 0.011)
    assert one.itl_mean_s == pytest.approx(0.011)
    assert first == done == [one]
    assert one.produced == 5


def test_an_answer_of_one_token_is_not_transferred() -> None:
    one = Sequence(0, 40, 1)
    _, first, done = run_any(_config(), _TABLE, [(0.0, one)])
    assert one.finished_s == one.first_token_s == pytest.approx(0.05)
    assert first == done == [one]


def test_decodes_are_not_held_up_by_prompts() -> None:
    decoding = Sequence(0, 10, 100)
    prompts = [(0.2 + i * 0.05, Sequence(1 + i, 60, 1)) for i in range(15)]
    run_any(_config(), _TABLE, [(0.0, decoding), *prompts])
    assert decoding.itl_p99_s == pytest.approx(0.011)


def test_what_waits_for_the_decode_engine_has_a_longer_first_gap() -> None:
    config = _config(running_max=1, latency_s=0.0, token_s=0.0)
    one, two = Sequence(0, 10, 11), Sequence(1, 10, 3)
    run_any(config, _TABLE, [(0.0, one), (0.0, two)])
    assert one.finished_s == pytest.approx(0.02 + 10 * 0.011)
    assert two.first_token_s == pytest.approx(0.04)
    # Until the one before it has ended, and then a step.
    assert two.itl_p99_s == pytest.approx(one.finished_s - 0.04 + 0.011)
    assert two.finished_s == pytest.approx(one.finished_s + 2 * 0.011)
    assert two.itl_mean_s == pytest.approx((two.finished_s - 0.04) / 2)


def test_a_prefill_engine_keeps_blocks_until_they_are_copied() -> None:
    config = _config(kv_blocks=4, latency_s=1.0, token_s=0.0)
    one, two = Sequence(0, 48, 2), Sequence(1, 48, 2)  # three blocks each
    run_any(config, _TABLE, [(0.0, one), (0.0, two)])
    assert one.first_token_s == pytest.approx(1.058)
    assert two.first_token_s == pytest.approx(1.058 + 1.058)


def test_requests_go_to_the_engines_with_the_fewest() -> None:
    sequences = [Sequence(i, 50, 10) for i in range(4)]
    engine, _, _ = run_any(_config(prefill=2, decode=2), _TABLE, [(0.0, s) for s in sequences])
    assert [member.prefill_tokens for member in engine.members] == [100, 100, 0, 0]
    assert [member.finished for member in engine.members] == [0, 0, 2, 2]


def test_what_gives_way_is_computed_anew_where_it_decodes() -> None:
    config = _config(kv_blocks=8, prefix_cache=False)
    sequences = [Sequence(i, 40, 60) for i in range(3)]
    engine, first, done = run_any(config, _TABLE, [(0.0, each) for each in sequences])
    decode = engine.members[1]
    assert decode.preemptions > 0
    assert decode.prefill_tokens > 0
    assert sorted(each.id for each in first) == sorted(each.id for each in done) == [0, 1, 2]
    assert sum(each.output_tokens for each in engine.members) == 180


@pytest.mark.parametrize("seed", range(8))
def test_the_gaps_of_each_answer_add_up_wherever_it_waited(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: list[tuple[float, float]] = []

    def spy(
        gaps: NDArray[np.float64], past: list[NDArray[np.float64]] | None, whole_s: float
    ) -> tuple[float, float]:
        sums.append((float(np.concatenate((*(past or ()), gaps)).sum()), whole_s))
        return gap_figures(gaps, past, whole_s)

    monkeypatch.setattr("mileage.sim.engine.gap_figures", spy)
    random = Random(seed)
    config = _config(decode=2, kv_blocks=10, running_max=6)
    arrivals = [
        (i * 0.05, Sequence(i, random.randint(1, 60), random.randint(2, 70))) for i in range(40)
    ]
    engine, _, _ = run_any(config, _TABLE, arrivals)
    assert sum(member.preemptions for member in engine.members) > 0
    assert len(sums) == 40
    for gaps_s, whole_s in sums:
        assert gaps_s == pytest.approx(whole_s)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whoever_leaves_all_others_end_and_no_block_is_lost(seed: int) -> None:
    random = Random(seed)
    adapters = random.choice((None, AdaptersConfig(slots=2, load_s=0.01)))
    config = _config(
        random.randint(1, 2),
        random.randint(1, 3),
        random.choice((0.0, 1e-4, 1e-2)),
        random.choice((0.0, 0.1)),
        kv_blocks=random.choice((12, 30, 100)),
        running_max=random.choice((1, 4)),
        adapters=adapters,
    )
    arrivals, leaves, now_s = [], [], 0.0
    for number in range(40):
        now_s += random.expovariate(random.choice((5.0, 50.0)))
        prompt = random.randint(1, 100)
        keys = tuple(range(random.randint(0, 1) * 50, 50))[: prompt // 16]
        sequence = Sequence(number, prompt, random.randint(0, 60), keys, 16)
        sequence.adapter = random.choice((None, "a", "b", "c"))
        arrivals.append((now_s, sequence))
        if random.random() < 0.4:
            leaves.append((now_s + random.expovariate(4.0), sequence))
    engine, first, done = run_any(config, _TABLE, arrivals, leaves)
    left = {each for _, each in leaves} - set(done)
    assert len(done) == len(set(done)) == 40 - len(left)
    assert len(first) == len(set(first)) >= len(done)
    for each in done:
        assert each.state == GONE
        assert each.produced == each.output_tokens
    for member in engine.members:
        assert member.pool.free == member.pool.blocks
        assert not member.running
        assert member.queued == 0


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.disaggregation\.prefill_engines"):
        DisaggregationConfig(prefill_engines=0)
    with pytest.raises(ConfigError, match=r"engine\.dp_ranks.*not together with disaggregation"):
        _config(dp_ranks=2)
