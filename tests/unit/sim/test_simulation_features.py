"""Every kind of engine behind the controller: all is answered, counted, and the same each time."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.slo import Slo, SloConfig
from mileage.policy.eviction.choose import EvictionConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import (
    AdaptersConfig,
    DisaggregationConfig,
    KvTierConfig,
    SpeculationConfig,
    StaticBatchConfig,
)
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import OK
from mileage.sim.sim_config import SimConfig
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.sim.summary import summarise
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 2e-4, 1e-6, 5e-5, 1e-8))
_PLAIN = EngineConfig(kv_blocks=400, running_max=16, step_tokens_max=256)
_FEATURES: dict[str, dict[str, Any]] = {
    "eviction": {"eviction": EvictionConfig()},
    "kv_tiers": {"kv_tiers": (KvTierConfig(blocks=500, block_load_s=1e-3),)},
    "adapters": {"adapters": AdaptersConfig(slots=2, load_s=0.05)},
    "contiguous": {"kv_layout": "contiguous", "context_tokens_max": 400},
    "static_batch": {"static_batch": StaticBatchConfig(size=8)},
    "speculation": {"speculation": SpeculationConfig(draft_tokens=2)},
    "disaggregation": {
        "disaggregation": DisaggregationConfig(decode_engines=2, transfer_latency_s=0.01)
    },
    "dp_ranks": {"dp_ranks": 2},
    "disaggregation with tiers and adapters": {
        "disaggregation": DisaggregationConfig(transfer_token_s=1e-5),
        "kv_tiers": (KvTierConfig(blocks=500, block_load_s=1e-3, store="computed"),),
        "adapters": AdaptersConfig(slots=2, load_s=0.05),
        "eviction": EvictionConfig(policy="lru"),
    },
}


def _traffic() -> list[TraceRequest]:
    random, now_s, requests = Random(3), 0.0, []
    for _ in range(150):
        now_s += random.expovariate(8.0)
        stem = random.randint(0, 5) * 100
        prompt = random.randint(20, 300)
        requests.append(
            TraceRequest(
                arrived_s=now_s,
                prompt_tokens=prompt,
                output_tokens=random.randint(1, 90),
                prefix_blocks=tuple(range(stem, stem + prompt // 16)),
                block_tokens=16,
                adapter=random.choice((None, "a", "b", "c")),
            )
        )
    return requests


def _run(feature: str) -> SimResult:
    engine = msgspec.structs.replace(_PLAIN, **_FEATURES[feature])
    specs = [ReplicaSpec(name=f"r{i}", engine=engine, table=_TABLE) for i in range(2)]
    control = ControlConfig(
        governor=GovernorConfig(policy="aimd", reject_late=False),
        slo=SloConfig(ttft_s=30.0, itl_s=1.0),
    )
    return Simulation(specs, control=control, config=SimConfig(seed=5)).run(_traffic())


@pytest.mark.parametrize("feature", _FEATURES)
def test_all_is_answered_and_counted_once(feature: str) -> None:
    result, requests = _run(feature), _traffic()
    out = result.outcomes
    assert set(out.status) == {OK}
    assert list(out.output_tokens) == [each.output_tokens for each in requests]
    replicas = result.replicas
    assert sum(each.output_tokens for each in replicas) == sum(out.output_tokens)
    assert sum(each.prompt_tokens for each in replicas) == sum(out.prompt_tokens)
    assert sum(each.finished for each in replicas) == 150
    for i in range(150):
        assert 0.0 < out.ttft_s[i] <= out.e2e_s[i]
        assert out.cached_tokens[i] < out.prompt_tokens[i]
    for name in ("kv_usage_ratio", "busy_ratio"):
        assert 0.0 < (result.series.peak(name) or 0.0) <= 1.0 + 1e-9
    summary = summarise(result, slo=Slo(ttft_s=30.0))
    assert summary.answered == 150
    assert summary.kv_cache_usage_peak_ratio <= 1.0


@pytest.mark.parametrize("feature", _FEATURES)
def test_the_same_seed_gives_the_same_results_to_the_last_bit(feature: str) -> None:
    one, other = (_run(feature).outcomes for _ in range(2))
    for name in type(one).__slots__:
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


def test_what_is_kept_behind_the_gpu_saves_prefill() -> None:
    plain, tiered = (
        Simulation(
            [ReplicaSpec(name="r", engine=engine, table=_TABLE)],
            control=ControlConfig(governor=GovernorConfig(mode="off")),
        ).run(_traffic())
        for engine in (
            msgspec.structs.replace(_PLAIN, kv_blocks=60),
            msgspec.structs.replace(_PLAIN, kv_blocks=60, **_FEATURES["kv_tiers"]),
        )
    )
    assert tiered.replicas[0].load_tokens > 0
    assert tiered.replicas[0].prefill_tokens < plain.replicas[0].prefill_tokens
