"""The compiled path takes only what it simulates: a new key of a configuration is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.policy.eviction.choose import EvictionConfig
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import (
    AdaptersConfig,
    DisaggregationConfig,
    KvTierConfig,
    SpeculationConfig,
    StaticBatchConfig,
)
from mileage.sim.fast import support
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import SimConfig
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 1e-4, 0.0, 1e-3, 0.0))
_PLAIN = EngineConfig(kv_blocks=100, running_max=8, step_tokens_max=64)
_FEATURES: dict[str, dict[str, Any]] = {
    "prefill": {"prefill": PrefillConfig()},
    "noise_ratio": {"noise_ratio": 0.1},
    "eviction": {"eviction": EvictionConfig()},
    "kv_tiers": {"kv_tiers": (KvTierConfig(blocks=1, block_load_s=0.1),)},
    "adapters": {"adapters": AdaptersConfig()},
    "kv_layout": {"kv_layout": "contiguous", "context_tokens_max": 64},
    "static_batch": {"static_batch": StaticBatchConfig()},
    "speculation": {"speculation": SpeculationConfig()},
    "disaggregation": {"disaggregation": DisaggregationConfig()},
    "dp_ranks": {"dp_ranks": 2},
    "chunked_prefill": {"chunked_prefill": False},
}


@pytest.fixture(autouse=True)
def _with_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "MISSING", None)


def _why(engine: EngineConfig) -> str | None:
    spec = ReplicaSpec(name="r", engine=engine, table=_TABLE)
    control = ControlConfig(governor=GovernorConfig(mode="off"))
    return support.supports([spec], control, SimConfig())


def test_a_plain_engine_is_taken() -> None:
    assert _why(_PLAIN) is None
    assert _why(msgspec.structs.replace(_PLAIN, prefix_cache=False, watermark_ratio=0.1)) is None


@pytest.mark.parametrize("key", _FEATURES)
def test_a_feature_that_only_the_python_path_has_is_refused_by_name(key: str) -> None:
    why = _why(msgspec.structs.replace(_PLAIN, **_FEATURES[key]))
    assert why is not None
    assert key in why


def test_every_key_is_either_simulated_or_refused() -> None:
    """A key that is added to the configuration has to be put on one of the two lists."""
    assert set(EngineConfig.__struct_fields__) - support._ENGINE_KEYS == set(_FEATURES)
