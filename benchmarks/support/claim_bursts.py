"""Bursts in virtual time: how evenly a limit, or fixed batches, let answers come."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from benchmarks.support.governor_jitter import jitter
from mileage.cli.simulate_policy import policy_choice
from mileage.control.config import ControlConfig, GovernorConfig
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.step_table import StepTable
from mileage.measure.quantiles import quantile
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import StaticBatchConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import OK
from mileage.sim.simulation import Simulation
from mileage.workload.synthetic.generator import generate
from mileage.workload.synthetic.spelling import parse_synthetic

__all__ = ["BURST_FLOOD_RPS", "LOAD", "BurstRun", "Way", "burst_run"]

LOAD = "gaps between arrivals with a coefficient of variation of 3"
BURST_FLOOD_RPS = 60.0
"""More than it answers in fixed batches."""
_TRACE = "duration=3m,arrivals=gamma,cv=3,prompt=64,output=uniform:120:140"
_WARM_S, _END_S, _BIN_S = 10.0, 180.0, 1.0
_RUNNING_MAX, _STEP_TOKENS_MAX = 256, 2048

Way = Literal["fixed", "slots", "volatility"]


@dataclass(frozen=True, slots=True)
class BurstRun:
    """Sigma over mean of completions per second, the p99 of E2E in seconds, and answers per second
    while requests came."""

    jitter: float
    e2e_p99_s: float
    answered_rps: float


@lru_cache(maxsize=1)
def _deployment() -> Deployment:
    return Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("a100-80gb"))


@cache
def burst_run(way: Way, seed: int, rate: float) -> BurstRun:
    """One run of the same bursts, at `rate` requests per second: in formed batches of 64,
    through 64 slots of a continuous batch, or through a limit by volatility."""
    deployment = _deployment()
    engine = EngineConfig(
        kv_blocks=deployment.kv_blocks(16, _STEP_TOKENS_MAX, _RUNNING_MAX),
        running_max=_RUNNING_MAX,
        step_tokens_max=_STEP_TOKENS_MAX,
        static_batch=StaticBatchConfig(size=64) if way == "fixed" else None,
    )
    spec = ReplicaSpec(name="replica-0", engine=engine, table=_table())
    policy = {"fixed": "off", "slots": "static:64+wait", "volatility": "volatility+wait"}[way]
    governor = policy_choice(policy, GovernorConfig()).governor
    trace = generate(parse_synthetic(f"rate={rate:g},{_TRACE}", seed=seed))
    done = Simulation([spec], control=ControlConfig(governor=governor)).run(trace).outcomes
    answered = [row for row in range(len(done)) if done.status[row] == OK]
    ends_s = [done.arrived_s[row] + done.e2e_s[row] for row in answered]
    found = jitter(ends_s, _WARM_S, _END_S, _BIN_S)
    if found is None:
        raise RuntimeError(f"nothing was answered by {way}")
    tail_s = quantile([done.e2e_s[row] for row in answered], 0.99) or 0.0
    in_time = sum(_WARM_S <= end_s < _END_S for end_s in ends_s)
    return BurstRun(found, tail_s, in_time / (_END_S - _WARM_S))


@lru_cache(maxsize=1)
def _table() -> StepTable:
    return _deployment().step_table(_RUNNING_MAX, _STEP_TOKENS_MAX)
