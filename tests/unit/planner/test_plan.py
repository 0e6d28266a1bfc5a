"""Plan: picks, front, binding and assumptions of a small search."""

from __future__ import annotations

import pytest

from mileage.core.slo import Slo
from mileage.costmodel.catalogue import architecture, gpu
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.evaluator import Evaluator
from mileage.planner.goal import Goal
from mileage.planner.plan import PICKS, Plan, make_plan
from mileage.planner.space import Space
from mileage.planner.traffic import Traffic
from mileage.sim.engine_features import SpeculationConfig
from mileage.workload.trace_request import TraceRequest

BUILDER = Builder(model=architecture("llama-3.1-8b"))
A10, H100 = (gpu(name) for name in ("a10", "h100"))
TRAFFIC = Traffic.of(
    TraceRequest(arrived_s=at * 0.25, prompt_tokens=300 + at % 500, output_tokens=40)
    for at in range(240)
)
SPACE = Space(
    gpus=(A10.name, H100.name),
    tensor_parallel=(1, 2, 3),
    replicas=(1, 2),
    weights=("bf16", "int4"),
    kv=("bf16",),
    running_max=(64,),
    step_tokens_max=(1024, 2048),
)
USD = {A10.name: 1.0, H100.name: 3.0}


def planned(slo: Slo, *, space: Space = SPACE, usd: dict[str, float | None] | None = None) -> Plan:
    prices: dict[str, float | None] = dict(USD) if usd is None else usd
    world = World(
        goal=Goal(slo=slo),
        usd_per_gpu_hour=prices,
        rank_by="usd" if all(prices.values()) else "gpu_hours",
    )
    evaluator = Evaluator(BUILDER, TRAFFIC, world)
    sources = dict.fromkeys(prices, "a list")
    return make_plan(space, BUILDER, TRAFFIC, world, evaluator.all, price_sources=sources)


def test_picks_keep_the_goal_and_differ_in_what_they_are_best_at() -> None:
    plan = planned(Slo(ttft_s=1.0, itl_s=0.1))
    assert set(plan.picks) == set(PICKS)
    cheapest, fast = plan.picks["cheapest"], plan.picks["low_latency"]
    assert cheapest is not None
    assert fast is not None
    assert cheapest.figures.feasible
    assert fast.figures.feasible
    assert cheapest.figures.usd_per_mtok is not None
    assert fast.figures.usd_per_mtok is not None
    assert cheapest.figures.usd_per_mtok <= fast.figures.usd_per_mtok
    assert fast.figures.ttft_s is not None
    assert cheapest.figures.ttft_s is not None
    assert fast.figures.ttft_s <= cheapest.figures.ttft_s
    assert cheapest.candidate.gpu == A10.name
    assert fast.candidate.gpu == H100.name
    assert plan.certain
    assert plan.closest is None
    if plan.cheaper is not None:
        assert plan.cheaper.figures.cost < cheapest.figures.cost
        assert not plan.cheaper.figures.feasible


def test_nothing_on_the_front_is_beaten() -> None:
    plan = planned(Slo(ttft_s=1.0))
    points = [(c.figures.ttft_s, c.figures.itl_s, c.figures.cost) for c in plan.pareto]
    assert points
    for one in points:
        for other in points:
            beaten = all(o <= p for o, p in zip(other, one, strict=True)) and other != one  # type: ignore[operator]
            assert not beaten
    costs = [cost for *_, cost in points]
    assert costs == sorted(costs)


def test_what_was_ruled_out_is_told_with_an_example() -> None:
    plan = planned(Slo(itl_s=0.012))
    assert {each.reason for each in plan.impossible} == {"layout"}
    (ruled,) = plan.ruled_out
    assert ruled.limit == "itl"
    assert A10.name in ruled.example
    assert ruled.candidates < plan.candidates


def test_where_nothing_keeps_the_goal_the_nearest_is_told() -> None:
    one = Space(
        gpus=(A10.name,),
        tensor_parallel=(1,),
        replicas=(1,),
        weights=("bf16",),
        running_max=(64,),
        step_tokens_max=(2048,),
    )
    plan = planned(Slo(ttft_s=0.08), space=one)
    assert all(plan.picks[name] is None for name in ("cheapest", "low_latency", "balanced"))
    if plan.closest is None:
        assert plan.ruled_out
    else:
        assert plan.closest.figures.attainment_ratio < 0.95


def test_without_a_price_gpu_hours_rank_and_it_is_said() -> None:
    plan = planned(Slo(ttft_s=1.0), usd={A10.name: None, H100.name: 3.0})
    assert plan.ranked_by == "gpu_hours"
    assert f"No price of {A10.name} is known" in " ".join(plan.assumptions)
    assert "ranked by GPU-hours" in " ".join(plan.assumptions)
    cheapest = plan.picks["cheapest"]
    assert cheapest is not None
    assert cheapest.figures.cost == cheapest.figures.gpu_h_per_mtok


def test_what_binds_can_be_checked_by_hand() -> None:
    cheapest = planned(Slo(ttft_s=1.0, itl_s=0.1)).picks["cheapest"]
    assert cheapest is not None
    bound, step = cheapest.binding, cheapest.binding.step
    assert [each.used_ratio for each in bound.limits] == sorted(
        (each.used_ratio for each in bound.limits), reverse=True
    )
    assert {each.limit for each in bound.limits} == {"ttft", "itl", "kv_room", "load"}
    # All but the embedding, of which a row is looked up for each request.
    embedding = 128256 * 4096 * 2 / cheapest.candidate.tensor_parallel
    assert step.weight_gb == pytest.approx((cheapest.memory.weights - embedding) / 1e9)
    assert step.weight_read_s == pytest.approx(step.weight_gb / A10.bandwidth_gb_per_s)
    token_bytes = 32 * 2 * 8 * 128 * 2 / cheapest.candidate.tensor_parallel
    assert step.kv_gb == pytest.approx(step.requests * step.context_tokens * token_bytes / 1e9)
    assert sum(step.by_bound_s.values()) == pytest.approx(step.step_s)
    assert step.weight_read_s + step.kv_read_s <= step.step_s
    assert bound.text


def test_of_a_mixture_a_step_reads_the_experts_that_it_chooses() -> None:
    builder = Builder(model=architecture("deepseek-v2-lite"))
    world = World(goal=Goal(), usd_per_gpu_hour={A10.name: 1.0})
    space = Space(
        gpus=(A10.name,),
        tensor_parallel=(2,),
        replicas=(1,),
        weights=("int4",),
        running_max=(64,),
        step_tokens_max=(2048,),
    )
    plan = make_plan(space, builder, TRAFFIC, world, Evaluator(builder, TRAFFIC, world).all)
    cheapest = plan.picks["cheapest"]
    assert cheapest is not None
    step = cheapest.binding.step
    assert step.requests < 20
    assert 0.1 < step.weight_gb / (cheapest.memory.weights / 1e9) < 0.9


def test_assumptions_speak_of_what_is_in_the_space() -> None:
    plain = " ".join(planned(Slo(ttft_s=1.0)).assumptions)
    assert "fewer bits" in plain
    assert "Proposed tokens" not in plain
    assert f"{H100.name}: 3 USD per GPU and hour (a list)" in plain
    drafting = Space(
        gpus=(H100.name,),
        tensor_parallel=(1,),
        replicas=(1,),
        weights=("bf16",),
        kv=("bf16",),
        running_max=(64,),
        step_tokens_max=(2048,),
        speculation=(SpeculationConfig(),),
    )
    plan = planned(Slo(ttft_s=1.0), space=drafting)
    assert "Proposed tokens" in " ".join(plan.assumptions)
    assert "fewer bits" not in " ".join(plan.assumptions)
    chosen = plan.picks["cheapest"]
    assert chosen is not None
    assert chosen.candidate == Candidate(
        gpu=H100.name, running_max=64, speculation=SpeculationConfig()
    )
