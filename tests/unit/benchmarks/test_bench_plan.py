"""The planner's benchmark: its space, its prices, and what it calls the choice."""

from __future__ import annotations

import math

import pytest

from benchmarks.plan import BARS, CARDS, CONFIGS, GRID, MODEL, SLO, chosen, in_reach, main, world_of
from mileage.costmodel.catalogue import architecture
from mileage.planner.built import Builder
from mileage.planner.goal import Goal
from mileage.planner.search import Found
from mileage.planner.traffic import Traffic
from mileage.workload.trace_request import TraceRequest


def test_every_card_has_a_price() -> None:
    assert all(world_of(SLO).usd_per_gpu_hour[name] for name in CARDS)


def test_enough_set_ups_are_in_reach_and_each_is_another() -> None:
    traffic = Traffic.of(
        TraceRequest(arrived_s=float(at), prompt_tokens=500, output_tokens=100) for at in range(50)
    )
    found = in_reach(Builder(model=architecture(MODEL)), traffic, Goal())
    assert len(found) == len(set(found)) == CONFIGS


def test_the_grid_can_be_exhausted() -> None:
    assert 50 < len(GRID.explore(Builder(model=architecture(MODEL))).candidates) < 200


def test_nothing_found_costs_infinitely() -> None:
    assert chosen(Found(seen=(), rounds=(), certain=True)) == math.inf


def test_the_bars_are_those_of_two_cores() -> None:
    assert {bar.figure: round(bar.limit, 6) for bar in BARS} == {
        "wall_s": 120,
        "regret_ratio": 0.02,
    }


def test_without_a_trace_there_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.plan.find_trace", lambda given: None)
    assert main(["--json"]) == 3
    assert "no trace" in capsys.readouterr().out
