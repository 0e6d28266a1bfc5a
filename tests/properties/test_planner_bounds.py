"""The planner's bounds drop nothing that the simulator shows to keep the goal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.core.slo import Slo
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import gpu
from mileage.planner.bounds import Bounds
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate, Disaggregation, Sharing
from mileage.planner.evaluation import World, evaluate
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic
from mileage.sim.engine_features import SpeculationConfig
from mileage.workload.trace_request import TraceRequest

MODEL = Architecture(
    name="small",
    layers=16,
    hidden=1024,
    heads=16,
    kv_heads=4,
    head_dim=64,
    intermediate=4096,
    vocab=32000,
)
BUILDERS = {
    utilisation: Builder(model=MODEL, gpu_memory_ratio=utilisation) for utilisation in (0.12, 0.6)
}
KINDS: list[dict[str, Any]] = [
    {},
    {"replicas": 3},
    {"tensor_parallel": 2},
    {"chunked_prefill": False},
    {"prefix_cache": False},
    {"graph_sizes": "none"},
    {"pipeline_parallel": 2},
    {"data_parallel": 2},
    {"speculation": SpeculationConfig(draft_tokens=3)},
    {"disaggregation": Disaggregation(prefill_engines=1, decode_engines=2)},
    {"replicas": 2, "sharing": Sharing(replicas=2)},
    {"replicas": 2, "sharing": Sharing(replicas=2, mode="mps", capacity_ratio=1.4)},
    {"replicas": 2, "sharing": Sharing(replicas=2, mode="mig")},
]


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """A burst, or a steady stream, of up to 60 requests; some of their prompts begin alike."""
    count = draw(st.integers(1, 60))
    gap_s = draw(st.sampled_from([0.0, 0.002, 0.05]))
    seed = draw(st.integers(0, 2**16))
    shared = draw(st.booleans())
    random = np.random.default_rng(seed)
    requests, arrived_s = [], 0.0
    for _ in range(count):
        arrived_s += float(random.exponential(gap_s)) if gap_s else 0.0
        prompt = int(random.lognormal(5.5, 1.3)) + 1
        blocks = tuple(range(min(prompt // 16, int(random.integers(0, 40))))) if shared else ()
        requests.append(
            TraceRequest(
                arrived_s=arrived_s,
                prompt_tokens=min(prompt, 6000),
                output_tokens=int(random.geometric(0.02)),
                prefix_blocks=blocks,
                block_tokens=16 if blocks else 0,
            )
        )
    return Traffic.of(requests)


@settings(max_examples=120, deadline=None)
@given(
    traffic=traffics(),
    kind=st.sampled_from(KINDS),
    card=st.sampled_from(["a10", "h100"]),
    limits=st.sampled_from([(4, 128), (64, 512), (256, 2048)]),
    memory=st.sampled_from(sorted(BUILDERS)),
    quantile=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_what_the_simulator_shows_to_keep_a_goal_is_not_dropped(
    traffic: Traffic,
    kind: dict[str, Any],
    card: str,
    limits: tuple[int, int],
    memory: float,
    quantile: float,
) -> None:
    candidate = Candidate(
        gpu=gpu(card).name, running_max=limits[0], step_tokens_max=limits[1], **kind
    )
    built = BUILDERS[memory].build(candidate)
    loose = Goal(attainment_ratio=quantile)
    seen = evaluate(built, traffic, World(goal=loose))
    if seen.ttft_s is None or not seen.answered:
        return
    # The tightest goal that this very simulation keeps.
    slo = Slo(ttft_s=seen.ttft_s, itl_s=seen.itl_s)
    drain_s = max(seen.duration_s - traffic.span_s, 1e-6)
    tight = Goal(slo=slo, attainment_ratio=quantile, drain_s=drain_s)
    share = evaluate(built, traffic, World(goal=tight)).attainment_ratio
    kept = Goal(slo=slo, attainment_ratio=max(share, 0.01), drain_s=drain_s * (1.0 + 1e-9))
    if share > 0.01:
        assert evaluate(built, traffic, World(goal=kept)).feasible
        assert Bounds(traffic, kept).out_of_reach(built) is None


@pytest.mark.parametrize(
    ("goal", "limit"),
    [
        pytest.param(Goal(slo=Slo(ttft_s=1e-3)), "ttft", id="a first token within a millisecond"),
        pytest.param(Goal(slo=Slo(itl_s=1e-4)), "itl", id="a token each tenth of a millisecond"),
        pytest.param(Goal(drain_s=0.001), "load", id="all at once, and done at once"),
    ],
)
def test_what_nothing_could_keep_is_dropped(goal: Goal, limit: str) -> None:
    requests = [TraceRequest(arrived_s=0.0, prompt_tokens=4000, output_tokens=50)] * 200
    built = BUILDERS[0.6].build(Candidate(gpu=gpu("a10").name))
    found = Bounds(Traffic.of(requests), goal).out_of_reach(built)
    assert found is not None
    assert found.limit == limit


def test_a_prompt_that_fits_nowhere_is_told() -> None:
    requests = [TraceRequest(arrived_s=0.0, prompt_tokens=900_000, output_tokens=1)]
    built = BUILDERS[0.12].build(Candidate(gpu=gpu("a10").name))
    found = Bounds(Traffic.of(requests), Goal()).out_of_reach(built)
    assert found is not None
    assert found.limit == "kv_room"
    assert "900,001" in found.text
