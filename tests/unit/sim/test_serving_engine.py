"""Features that cost nothing and limit nothing change nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import (
    AdaptersConfig,
    DisaggregationConfig,
    KvTierConfig,
    SpeculationConfig,
    StaticBatchConfig,
)
from mileage.sim.sequence import Sequence
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.012, 0.0, 3e-6, 0.0, 0.0), (0.002, 4e-4, 1e-6, 6e-5, 2e-8))
_INERT: dict[str, Any] = {
    "adapters": {"adapters": AdaptersConfig(slots=1000)},
    # Nothing is larger than the smallest unit, so that nothing is ever stored.
    "kv_tiers": {"kv_tiers": (KvTierConfig(blocks=1, block_load_s=1.0),)},
}


def _arrivals(random: Random) -> list[tuple[float, Sequence]]:
    arrivals, now_s = [], 0.0
    for number in range(50):
        now_s += random.expovariate(random.choice((5.0, 50.0)))
        stem = random.randint(0, 2) * 100
        prompt = random.randint(1, 200)
        keys = tuple(range(stem, stem + prompt // 32))
        sequence = Sequence(number, prompt, random.randint(0, 80), keys, 32)
        sequence.adapter = random.choice((None, "a", "b"))
        arrivals.append((now_s, sequence))
    return arrivals


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), feature=st.sampled_from(sorted(_INERT)))
def test_an_inert_feature_changes_nothing(seed: int, feature: str) -> None:
    random = Random(seed)
    plain = EngineConfig(
        kv_blocks=random.choice((20, 60, 400)),
        running_max=random.choice((2, 16)),
        step_tokens_max=random.choice((32, 256)),
        long_prefill_tokens_max=random.choice((None, 40)),
        whole_prompt_fits=random.random() < 0.7,
        noise_ratio=random.choice((0.0, 0.1)),
    )
    with_it = msgspec.structs.replace(plain, **_INERT[feature])
    ours, theirs = _arrivals(Random(seed)), _arrivals(Random(seed))
    engine = run_engine(with_it, _TABLE, ours, check=True)
    assert type(engine) is not Engine
    other = run_engine(plain, _TABLE, theirs)
    for (_, one), (_, two) in zip(ours, theirs, strict=True):
        for name in ("first_token_s", "finished_s", "itl_p99_s", "itl_mean_s"):
            expected = pytest.approx(getattr(two, name), rel=1e-9, nan_ok=True)
            assert getattr(one, name) == expected
        assert (one.preemptions, one.cached_tokens) == (two.preemptions, two.cached_tokens)
    assert engine.busy_s == pytest.approx(other.busy_s)
    assert engine.waiting_s == pytest.approx(other.waiting_s)
    assert engine.batch.steps == other.batch.steps


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(
            {"speculation": SpeculationConfig(), "static_batch": StaticBatchConfig()}, id="batches"
        ),
        pytest.param(
            {"disaggregation": DisaggregationConfig(), "prefill": PrefillConfig()}, id="prefill"
        ),
        pytest.param({"dp_ranks": 2, "speculation": SpeculationConfig()}, id="ranks"),
        pytest.param({"adapters": AdaptersConfig(), "prefill": PrefillConfig()}, id="adapters"),
        pytest.param(
            {
                "kv_tiers": (KvTierConfig(blocks=1, block_load_s=1.0),),
                "static_batch": StaticBatchConfig(),
            },
            id="tiers",
        ),
    ],
)
def test_features_that_change_the_same_thing_are_refused_together(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not"):
        EngineConfig(kv_blocks=100, running_max=8, **keys)
