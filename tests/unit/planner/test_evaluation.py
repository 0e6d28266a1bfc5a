"""Evaluation: figures of a simulated candidate, at the goal's quantile, with their intervals."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture, gpu
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World, evaluate
from mileage.planner.figures import batch_interval, quantile_of
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic
from mileage.workload.trace_request import TraceRequest

BUILDER = Builder(model=architecture("llama-3.1-8b"))
CARD = gpu("h100").name


def steady(count: int, gap_s: float, *, adapters: tuple[str | None, ...] = (None,)) -> Traffic:
    return Traffic.of(
        TraceRequest(
            arrived_s=at * gap_s,
            prompt_tokens=200,
            output_tokens=20,
            adapter=adapters[at % len(adapters)],
        )
        for at in range(count)
    )


def test_costs_are_of_all_gpus_for_the_whole_time() -> None:
    built = BUILDER.build(Candidate(gpu=CARD, replicas=2))
    world = World(goal=Goal(), usd_per_gpu_hour={CARD: 3.6})
    found = evaluate(built, steady(100, 0.1), world)
    assert (found.requests, found.answered, found.gpus) == (100, 100, 2)
    assert found.gpu_hours == pytest.approx(2 * found.duration_s / 3600)
    assert found.usd_per_mtok == pytest.approx(3.6 * found.gpu_hours / 2000 * 1e6)
    assert found.gpu_h_per_mtok is not None
    assert found.cost == found.usd_per_mtok
    assert found.feasible


def test_without_a_price_gpu_time_ranks() -> None:
    world = World(goal=Goal(), rank_by="gpu_hours")
    found = evaluate(BUILDER.build(Candidate(gpu=CARD)), steady(40, 0.1), world)
    assert found.usd_per_mtok is None
    assert found.cost == found.gpu_h_per_mtok
    by_usd = msgspec.structs.replace(world, rank_by="usd")
    assert evaluate(BUILDER.build(Candidate(gpu=CARD)), steady(40, 0.1), by_usd).cost == math.inf


@pytest.mark.parametrize(
    ("goal", "feasible"),
    [
        pytest.param(Goal(), True, id="nothing asked but to keep up"),
        pytest.param(Goal(slo=Slo(ttft_s=2.0, itl_s=0.1)), True, id="targets that are met"),
        pytest.param(Goal(slo=Slo(ttft_s=0.001)), False, id="a first token at once"),
        pytest.param(Goal(slo=Slo(itl_s=0.001), gaps="mean"), False, id="gaps that none has"),
        pytest.param(Goal(drain_s=0.001), False, id="not done with the last arrival"),
    ],
)
def test_a_goal_is_kept_or_not(goal: Goal, feasible: bool) -> None:
    built = BUILDER.build(Candidate(gpu=CARD))
    assert evaluate(built, steady(50, 0.05), World(goal=goal)).feasible is feasible


def test_what_has_no_answer_is_later_than_any() -> None:
    requests = [
        TraceRequest(arrived_s=0.1 * at, prompt_tokens=200 if at else 10**6, output_tokens=5)
        for at in range(10)
    ]
    built = BUILDER.build(Candidate(gpu=CARD))
    found = evaluate(built, Traffic.of(requests), World(goal=Goal(attainment_ratio=1.0)))
    assert (found.answered, found.ttft_s, found.itl_s) == (9, None, None)
    assert found.attainment_ratio == pytest.approx(0.9)
    near = evaluate(built, Traffic.of(requests), World(goal=Goal(attainment_ratio=0.9)))
    assert near.ttft_s is not None


def test_intervals_hold_their_figures() -> None:
    built = BUILDER.build(Candidate(gpu=CARD))
    world = World(goal=Goal(), usd_per_gpu_hour={CARD: 3.0})
    found = evaluate(built, steady(400, 0.02), world, intervals=True)
    assert set(found.interval) == {
        "ttft_s",
        "itl_s",
        "attainment_ratio",
        "usd_per_mtok",
        "gpu_h_per_mtok",
    }
    for key, (low, high) in found.interval.items():
        assert low <= getattr(found, key) <= high
    assert found.interval["attainment_ratio"][1] <= 1.0
    assert evaluate(built, steady(100, 0.02), world, intervals=True).interval == {}


def test_the_stages_of_a_pipeline_delay_first_tokens() -> None:
    one = evaluate(BUILDER.build(Candidate(gpu=CARD)), steady(20, 1.0), World(goal=Goal()))
    two = evaluate(
        BUILDER.build(Candidate(gpu=CARD, pipeline_parallel=2)), steady(20, 1.0), World(goal=Goal())
    )
    assert one.ttft_s is not None
    assert two.ttft_s is not None
    # A prompt that is alone passes both halves in turn: it is no sooner.
    assert two.ttft_s > 0.95 * one.ttft_s


def test_full_fine_tunes_have_fleets_of_their_own() -> None:
    traffic = steady(30, 0.1, adapters=("law", "med"))
    full = evaluate(BUILDER.build(Candidate(gpu=CARD, tuning="full")), traffic, World(goal=Goal()))
    shared = evaluate(
        BUILDER.build(Candidate(gpu=CARD, tuning="lora")), traffic, World(goal=Goal())
    )
    assert (full.gpus, shared.gpus) == (2, 1)
    assert full.answered == shared.answered == 30


def test_a_policy_has_to_be_given() -> None:
    with pytest.raises(ConfigError):
        evaluate(
            BUILDER.build(Candidate(gpu=CARD, policy="model")), steady(2, 1.0), World(goal=Goal())
        )


def test_quantiles_are_nearest_ranks_and_infinite_ones_unknown() -> None:
    values = np.array([3.0, 1.0, math.inf, 2.0])
    assert quantile_of(values, 0.75) == 3.0
    assert quantile_of(values, 1.0) is None
    assert quantile_of(np.array([]), 0.5) is None


def test_an_interval_needs_every_batch() -> None:
    assert batch_interval(2.0, [1.0, 2.0, None]) is None
    assert batch_interval(None, [1.0, 2.0]) is None
    assert batch_interval(2.0, [1.0, 2.0, 3.0]) == pytest.approx((0.0, 4.4841), abs=1e-3)
