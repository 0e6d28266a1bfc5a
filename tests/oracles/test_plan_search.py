"""The planner's search against brute force: the cheapest of a grid is found, to 2 %."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture, gpu
from mileage.planner.built import Builder
from mileage.planner.evaluation import World
from mileage.planner.evaluator import Evaluator
from mileage.planner.goal import Goal
from mileage.planner.search import SearchConfig, Task, search
from mileage.planner.space import Space
from mileage.planner.traffic import Traffic
from mileage.planner.windows import rungs
from mileage.sim.fast.jit import MISSING
from mileage.workload.trace_request import TraceRequest

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

MODEL = architecture("llama-3.1-8b")
CARDS = tuple(gpu(name).name for name in ("a10", "l40s", "h100"))
USD = dict(zip(CARDS, (1.0, 1.9, 3.1), strict=True))
GRID = Space(
    gpus=CARDS,
    gpus_max=6,
    tensor_parallel=(1, 2),
    replicas=(1, 2, 3, 4),
    weights=("bf16", "int4"),
    kv=("bf16",),
    running_max=(16, 256),
    step_tokens_max=(2048,),
)
CONFIG = SearchConfig(keep_ratio=0.2, keep_min=4, batch=2)


def bursty(seed: int, rate_rps: float) -> Traffic:
    """Ten minutes, in which the load doubles for a while, with prompts of all lengths."""
    random = np.random.default_rng(seed)
    requests, now_s = [], 0.0
    while now_s < 600.0:
        factor = 2.0 if 200.0 < now_s < 260.0 else 1.0
        now_s += float(random.exponential(1.0 / (rate_rps * factor)))
        requests.append(
            TraceRequest(
                arrived_s=now_s,
                prompt_tokens=int(min(random.lognormal(6.5, 0.9), 6000)) + 1,
                output_tokens=int(random.geometric(1 / 150)),
            )
        )
    return Traffic.of(requests)


@pytest.mark.parametrize(
    ("seed", "rate_rps", "slo"),
    [
        pytest.param(1, 4.0, Slo(ttft_s=1.0, itl_s=0.06), id="both targets"),
        pytest.param(2, 8.0, Slo(ttft_s=0.5), id="first tokens soon"),
        pytest.param(3, 6.0, Slo(itl_s=0.03), id="small gaps"),
        pytest.param(4, 8.0, Slo(), id="nothing but to keep up"),
    ],
)
def test_the_cheapest_is_within_two_percent_of_the_cheapest_of_all(
    seed: int, rate_rps: float, slo: Slo
) -> None:
    traffic, builder = bursty(seed, rate_rps), Builder(model=MODEL)
    world = World(goal=Goal(slo=slo), usd_per_gpu_hour=USD)
    candidates = GRID.explore(builder).candidates
    evaluator = Evaluator(builder, traffic, world)
    whole = rungs(traffic)[-1]
    brute = evaluator.all([Task(candidate=each, rung=whole) for each in candidates])
    cheapest = min((each.cost for each in brute if each.feasible), default=math.inf)
    found = search(candidates, traffic, world, evaluator.all, CONFIG)
    assert found.certain
    assert found.rounds[0].share_ratio < 1.0
    assert len(found.seen) < len(candidates) / 2
    best = min(
        (each.figures.cost for each in found.seen if each.figures.feasible), default=math.inf
    )
    assert math.isfinite(cheapest)
    assert best <= 1.02 * cheapest
    by_candidate = dict(zip(candidates, brute, strict=True))
    assert all(by_candidate[each.candidate] == each.figures for each in found.seen)
