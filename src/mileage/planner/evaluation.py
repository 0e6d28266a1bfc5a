"""Evaluation: simulates a candidate on some traffic, and takes its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.costmodel.pipeline_fill import PipelineFill
from mileage.planner.built import Built
from mileage.planner.figures import Figures, batch_interval, quantile_of
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic
from mileage.sim.node import ReplicaSpec
from mileage.sim.outcome import OK
from mileage.sim.sim_config import SimConfig
from mileage.sim.sim_result import SimResult
from mileage.sim.simulation import Simulation
from mileage.sim.summary import attained

__all__ = ["World", "evaluate", "evaluated"]

Floats = NDArray[np.float64]
_BATCHES: Final = 10
_BATCH_REQUESTS: Final = 20
_OFF: Final = GovernorConfig(mode="off")


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all candidates."""

    goal: Goal
    usd_per_gpu_hour: Mapping[str, float | None] = {}
    """By the name of the GPU; what is not in it has no price."""
    rank_by: Literal["usd", "gpu_hours"] = "usd"
    """What is cheap: gpu_hours where there is a card whose price is not known."""
    governors: Mapping[str, GovernorConfig] = {}
    """By the spelling of a policy; `off` is always known."""
    seed: int = 0


def evaluate(built: Built, traffic: Traffic, world: World, *, intervals: bool = False) -> Figures:
    """Figures of one candidate. `intervals`: with the interval of each, which takes its time.

    Raises ConfigError for a policy that is not known. What the simulator gives up is no error, but
    told as the figures' problem.
    """
    candidate, goal = built.candidate, world.goal
    governor = world.governors.get(candidate.policy, _OFF)
    if candidate.policy != "off" and candidate.policy not in world.governors:
        raise ConfigError("policy", candidate.policy, "one whose governor is given")
    slo = SloConfig(ttft_s=goal.slo.ttft_s, itl_s=goal.slo.itl_s)
    control = ControlConfig(governor=governor, slo=slo)
    models = traffic.adapters if candidate.tuning == "full" else ()
    specs = built.specs(models) if models else built.specs()
    try:
        result = simulated(specs, traffic, candidate.tuning, control, SimConfig(seed=world.seed))
    except ConfigError as error:
        if error.key != "path":
            raise
        return _given_up(built, traffic, str(error.expected))
    return evaluated(built, result, traffic, world, intervals=intervals)


def simulated(
    specs: list[ReplicaSpec], traffic: Traffic, tuning: str, control: ControlConfig, sim: SimConfig
) -> SimResult:
    """By compiled code where that can, else by the gateway's own objects: the same results."""
    from mileage.sim.fast.run import run_fast  # takes its time: it has a compiler
    from mileage.sim.fast.support import unsupported

    plain = not (traffic.adapters and tuning != "none")
    if plain and unsupported(traffic.columns, specs, control, sim) is None:
        return run_fast(traffic.columns, specs, control, sim)
    return Simulation(specs, control=control, config=sim).run(traffic.requests(tuning))


def evaluated(
    built: Built, result: SimResult, traffic: Traffic, world: World, *, intervals: bool = False
) -> Figures:
    """The figures of a result."""
    goal, out, candidate = world.goal, result.outcomes, built.candidate
    ok = np.array(out.status, dtype=np.int8) == OK
    ttft_s, met = (
        _first_tokens(built.fill, result, ok),
        attained(result, slo=goal.slo, itl=goal.gaps),
    )
    if built.fill is not None and goal.slo.ttft_s is not None:
        met &= ttft_s <= goal.slo.ttft_s
    gap_s = np.array(out.itl_p99_s if goal.gaps == "p99" else out.itl_mean_s)
    gap_s = np.where(ok, gap_s, math.inf)
    tokens = np.where(ok, np.array(out.output_tokens, dtype=np.int64), 0)
    quantile, attainment = goal.attainment_ratio, float(met.mean())
    gpus = candidate.gpus(max(1, len(traffic.adapters)))
    gpu_hours = gpus * result.duration_s / 3600.0
    mtok = int(tokens.sum()) / 1e6
    usd = world.usd_per_gpu_hour.get(candidate.gpu)
    per_mtok = gpu_hours / mtok if mtok else None
    caught_up = result.duration_s <= traffic.span_s + goal.drain_s
    usd_per_mtok = None if usd is None or per_mtok is None else usd * per_mtok
    figures = Figures(
        requests=len(out),
        answered=int(ok.sum()),
        attainment_ratio=attainment,
        feasible=caught_up and attainment >= goal.attainment_ratio,
        caught_up=caught_up,
        ttft_s=quantile_of(ttft_s, quantile),
        itl_s=quantile_of(gap_s[~np.isnan(gap_s)], quantile),
        usd_per_mtok=usd_per_mtok,
        gpu_h_per_mtok=per_mtok,
        cost=_ranked(usd_per_mtok if world.rank_by == "usd" else per_mtok),
        gpus=gpus,
        gpu_hours=gpu_hours,
        output_tokens_per_s=mtok * 1e6 / result.duration_s if result.duration_s else 0.0,
        **_engines(result),
    )
    if not intervals:
        return figures
    arrays = (traffic.columns.arrived_s, ttft_s, gap_s, met, tokens)
    return msgspec.structs.replace(figures, interval=_intervals(figures, quantile, *arrays))


def _ranked(cost: float | None) -> float:
    return math.inf if cost is None else cost


def _first_tokens(fill: PipelineFill | None, result: SimResult, ok: NDArray[np.bool_]) -> Floats:
    """Seconds to the first token of each request; without an answer infinite."""
    out = result.outcomes
    ttft_s: Floats = np.array(out.ttft_s)
    if fill is not None:
        ttft_s = ttft_s + _fill_s(
            fill,
            np.array(out.prompt_tokens, dtype=np.int64),
            np.array(out.cached_tokens, dtype=np.int64),
        )
    return np.where(ok, ttft_s, math.inf)


def _fill_s(
    fill: PipelineFill, prompt_tokens: NDArray[np.int64], cached_tokens: NDArray[np.int64]
) -> Floats:
    """`PipelineFill.seconds`, of all requests at once."""
    chunks = np.array(fill.chunk_s)
    most = len(chunks) - 1
    computed = np.maximum(prompt_tokens - cached_tokens, 0)
    last = np.minimum(computed, most)
    pairs = last * (prompt_tokens - last) + last * (last + 1) / 2
    found: Floats = np.where(computed <= most, chunks[last], fill.full_s) + fill.pair_s * pairs
    return found


def _engines(result: SimResult) -> dict[str, Any]:
    each, duration_s = result.replicas, result.duration_s
    queried = sum(one.prefix_query_tokens for one in each)
    hits = sum(one.prefix_hit_tokens for one in each)
    return {
        "busy_ratio": sum(one.busy_s for one in each) / (duration_s * len(each))
        if duration_s
        else 0.0,
        "kv_peak_ratio": max(one.kv_blocks_peak / one.kv_blocks for one in each),
        "running_mean": sum(one.running_s for one in each) / (duration_s * len(each))
        if duration_s
        else 0.0,
        "waiting_mean": sum(one.waiting_s for one in each) / duration_s if duration_s else 0.0,
        "preemptions": sum(one.preemptions for one in each),
        "prefix_hit_ratio": hits / queried if queried else None,
        "duration_s": duration_s,
    }


def _intervals(
    figures: Figures,
    quantile: float,
    arrived_s: Floats,
    ttft_s: Floats,
    gap_s: Floats,
    met: NDArray[np.bool_],
    tokens: NDArray[np.int64],
) -> dict[str, tuple[float, float]]:
    """By ten tenths of the requests, for the costs by ten tenths of the time."""
    count = len(met)
    if count < _BATCHES * _BATCH_REQUESTS:
        return {}
    parts = np.array_split(np.arange(count), _BATCHES)
    gaps = [gap_s[part][~np.isnan(gap_s[part])] for part in parts]
    found = {
        "ttft_s": batch_interval(
            figures.ttft_s, [quantile_of(ttft_s[part], quantile) for part in parts]
        ),
        "itl_s": batch_interval(figures.itl_s, [quantile_of(each, quantile) for each in gaps]),
        "attainment_ratio": batch_interval(
            figures.attainment_ratio, [float(met[part].mean()) for part in parts]
        ),
    }
    share = found["attainment_ratio"]
    if share is not None:
        found["attainment_ratio"] = (share[0], min(1.0, share[1]))
    edges = np.linspace(arrived_s[0], arrived_s[-1], _BATCHES + 1)
    served, _ = np.histogram(arrived_s, edges, weights=tokens)
    mean = float(served.mean())
    rate = batch_interval(mean, served.tolist())
    for key, value in (
        ("usd_per_mtok", figures.usd_per_mtok),
        ("gpu_h_per_mtok", figures.gpu_h_per_mtok),
    ):
        if value is not None and rate is not None and rate[0] > 0.0:
            found[key] = (value * mean / rate[1], value * mean / rate[0])
    return {key: interval for key, interval in found.items() if interval is not None}


def _given_up(built: Built, traffic: Traffic, problem: str) -> Figures:
    """Of a fleet that so much has piled up before that it was not simulated to the end."""
    return Figures(
        requests=len(traffic),
        answered=0,
        attainment_ratio=0.0,
        feasible=False,
        caught_up=False,
        ttft_s=None,
        itl_s=None,
        usd_per_mtok=None,
        gpu_h_per_mtok=None,
        cost=math.inf,
        gpus=built.candidate.gpus(max(1, len(traffic.adapters))),
        gpu_hours=0.0,
        output_tokens_per_s=0.0,
        busy_ratio=1.0,
        kv_peak_ratio=1.0,
        running_mean=0.0,
        waiting_mean=0.0,
        preemptions=0,
        prefix_hit_ratio=None,
        duration_s=traffic.span_s,
        problem=problem,
    )
