"""Replicas on one GPU: how they slow each other down, by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import DisaggregationConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.sim.step_timer import gap_figures
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

_TABLE = linear_table((0.01, 0.0, 1e-6, 1e-3, 0.0))
_ENGINE = EngineConfig(kv_blocks=500, running_max=8, step_tokens_max=64)


def _run(
    *requests: tuple[float, str, int],
    gpu: str | None = "gpu",
    ratio: float = 1.0,
    noise: float = 0.0,
    prompt: int = 10,
) -> SimResult:
    """Of requests (arrival, model, output tokens); each model has a replica."""
    engine = EngineConfig(kv_blocks=500, running_max=8, step_tokens_max=64, noise_ratio=noise)
    specs = [
        ReplicaSpec(
            name=f"r-{model}",
            engine=engine,
            table=_TABLE,
            models=(model,),
            gpus=0.5,
            shared_gpu=gpu,
            shared_capacity_ratio=ratio,
        )
        for model in ("a", "b")
    ]
    trace = [
        TraceRequest(arrived_s=at_s, prompt_tokens=prompt, output_tokens=output, model=model)
        for at_s, model, output in requests
    ]
    return Simulation(specs, control=ControlConfig(governor=GovernorConfig(mode="off"))).run(trace)


def _alone_s(output: int, at: int = 0) -> float:
    """Time of such an answer without a neighbour, from its token `at` on; 0: all of it."""
    prefill_s = 0.0 if at else 0.02
    return prefill_s + sum(0.01 + (10 + i) * 1e-6 for i in range(max(0, at - 1), output - 1))


@pytest.mark.parametrize(("ratio", "slowdown"), [(1.0, 2.0), (1.6, 1.25), (2.0, 1.0), (3.0, 1.0)])
def test_two_equal_tenants_have_half_of_what_there_is(ratio: float, slowdown: float) -> None:
    out = _run((0.0, "a", 100), (0.0, "b", 100), ratio=ratio).outcomes
    assert list(out.e2e_s) == pytest.approx([slowdown * _alone_s(100)] * 2)
    assert list(out.ttft_s) == pytest.approx([slowdown * 0.02] * 2)
    assert list(out.itl_mean_s) == pytest.approx([slowdown * (_alone_s(100) - 0.02) / 99] * 2)


def test_without_sharing_nobody_is_slower() -> None:
    out = _run((0.0, "a", 100), (0.0, "b", 100), gpu=None).outcomes
    assert list(out.e2e_s) == pytest.approx([_alone_s(100)] * 2)


def test_a_tenant_is_slower_from_the_moment_on_that_another_one_comes() -> None:
    """Also in the middle of a step, and it is fast again when the other one has ended."""
    whole_s, short_s = _alone_s(200), _alone_s(20)
    out = _run((0.0, "a", 200), (0.5034, "b", 20)).outcomes
    assert out.e2e_s[1] == pytest.approx(2 * short_s)
    assert out.e2e_s[0] == pytest.approx(whole_s + short_s)
    # The GPU did both works one after the other, whatever the order.
    assert out.itl_p99_s[0] == pytest.approx(0.02, rel=0.05)
    assert out.itl_mean_s[0] == pytest.approx((whole_s + short_s - 0.02) / 199)


def test_a_step_that_is_slowed_down_halfway_takes_the_mean() -> None:
    # The second token's step of a is at half when b's prompt begins, which takes long.
    out = _run((0.0, "a", 3), (0.025, "b", 1), prompt=10).outcomes
    step_s = 0.01 + 10e-6
    second_s = 0.025 + 2 * (step_s - 0.005)
    third_s = second_s + 2 * (0.01 + 11e-6)
    assert out.e2e_s[0] == pytest.approx(third_s)
    # b has 20 ms of work; half of the time since it came until a had ended was its own.
    assert out.e2e_s[1] == pytest.approx(third_s - 0.025 + (0.02 - (third_s - 0.025) / 2))


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_the_gaps_of_each_answer_add_up_however_often_speeds_change(
    seed: int, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: list[tuple[float, float]] = []

    def spy(
        gaps: NDArray[np.float64], past: list[NDArray[np.float64]] | None, whole_s: float
    ) -> tuple[float, float]:
        sums.append((float(gaps.sum()), whole_s))
        return gap_figures(gaps, past, whole_s)

    monkeypatch.setattr("mileage.sim.engine.gap_figures", spy)
    random, now_s, requests = Random(seed), 0.0, []
    for _ in range(60):
        now_s += random.expovariate(2.0)
        requests.append((now_s, random.choice("ab"), random.randint(2, 80)))
    shared = _run(*requests, noise=noise)
    assert len(sums) == 60
    for gaps_s, whole_s in sums:
        assert gaps_s == pytest.approx(whole_s)
    apart = _run(*requests, noise=noise, gpu=None)
    assert sum(shared.outcomes.e2e_s) > 1.1 * sum(apart.outcomes.e2e_s)


def test_replicas_that_disagree_about_their_gpu_are_refused() -> None:
    specs = [
        ReplicaSpec(
            name=f"r{ratio}",
            engine=_ENGINE,
            table=_TABLE,
            shared_gpu="g",
            shared_capacity_ratio=ratio,
        )
        for ratio in (1.0, 1.5)
    ]
    with pytest.raises(ConfigError, match="shared_capacity_ratio"):
        Simulation(specs, control=ControlConfig())


def test_a_replica_of_several_engines_shares_no_gpu() -> None:
    engine = EngineConfig(
        kv_blocks=500,
        running_max=8,
        step_tokens_max=64,
        disaggregation=DisaggregationConfig(transfer_latency_s=0.1),
    )
    spec = ReplicaSpec(name="r", engine=engine, table=_TABLE, shared_gpu="g")
    with pytest.raises(ConfigError, match="shared_gpu"):
        Simulation([spec], control=ControlConfig())
