"""Targets are measured on streams as their clients saw them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.support.step_model import MODELS
from mileage.control.config import ControlConfig
from mileage.core.slo import Slo, SloConfig
from mileage.core.timeline import RequestTimeline
from mileage.gateway.target_metrics import TargetMetrics
from tests.support.governed import World

BOTH = SloConfig(ttft_s=0.5, itl_s=0.05)
YES_ALL = {("m", "ttft", "yes"): 1, ("m", "itl", "yes"): 1, ("m", "all", "yes"): 1}


def ended(**changes: Any) -> RequestTimeline:
    fields: dict[str, Any] = {
        "id": 1,
        "tenant": "t",
        "model": "m",
        "endpoint": "chat",
        "stream": True,
        "arrived_at_utc_ns": 0,
        "outcome": "ok",
        "status": 200,
        "first_token_s": 0.2,
        "itl_p99_s": 0.02,
    }
    return RequestTimeline(**(fields | changes))


def refused(reason: str) -> RequestTimeline:
    return ended(outcome="rejected", reason=reason, first_token_s=None, itl_p99_s=None)


def counted(slo: SloConfig, timeline: RequestTimeline) -> dict[tuple[str, ...], float]:
    metrics = TargetMetrics(slo)
    metrics.finished(timeline, "m")
    return metrics.requests.values


@pytest.mark.parametrize(
    ("timeline", "values"),
    [
        pytest.param(ended(), YES_ALL, id="both are met"),
        pytest.param(ended(first_token_s=0.5, itl_p99_s=0.05), YES_ALL, id="met exactly"),
        pytest.param(
            ended(first_token_s=0.6),
            {("m", "ttft", "no"): 1, ("m", "itl", "yes"): 1, ("m", "all", "no"): 1},
            id="a late first token misses all",
        ),
        pytest.param(
            ended(itl_p99_s=0.06),
            {("m", "ttft", "yes"): 1, ("m", "itl", "no"): 1, ("m", "all", "no"): 1},
            id="a stall misses all",
        ),
        pytest.param(
            ended(itl_p99_s=None),
            {("m", "ttft", "yes"): 1, ("m", "all", "yes"): 1},
            id="one token has no gaps",
        ),
        pytest.param(ended(first_token_s=None, itl_p99_s=None), {}, id="an error of 4xx has none"),
        pytest.param(ended(stream=False), {}, id="no stream: nobody sees its first token"),
        pytest.param(ended(outcome="cancelled"), {}, id="the client left"),
        pytest.param(ended(outcome="failed"), {("m", "all", "no"): 1}, id="the engine broke"),
        pytest.param(refused("deadline"), {("m", "all", "no"): 1}, id="refused: too late"),
        pytest.param(refused("queue_full"), {("m", "all", "no"): 1}, id="refused: too many"),
        pytest.param(refused("insufficient_quota"), {}, id="the tenant's own budget"),
        pytest.param(refused("model_not_found"), {}, id="the client's own mistake"),
    ],
)
def test_a_request_against_both_targets(
    timeline: RequestTimeline, values: dict[tuple[str, ...], float]
) -> None:
    assert counted(BOTH, timeline) == values


def test_without_targets_nothing_is_met_and_nothing_missed() -> None:
    assert counted(SloConfig(), ended()) == {}
    assert counted(SloConfig(), refused("deadline")) == {}


def test_a_model_has_targets_of_its_own() -> None:
    slo = SloConfig(ttft_s=0.1, models={"m": Slo(itl_s=0.03)})
    assert counted(slo, ended(first_token_s=9.0)) == {
        ("m", "itl", "yes"): 1,
        ("m", "all", "yes"): 1,
    }
    assert counted(slo, ended(model="n"))["m", "all", "no"] == 1


def test_the_targets_in_force_at_the_end_count() -> None:
    metrics = TargetMetrics(SloConfig(ttft_s=0.1))
    metrics.finished(ended(), "m")
    metrics.slo = SloConfig(ttft_s=1.0)
    metrics.finished(ended(), "m")
    assert metrics.requests.values["m", "ttft", "no"] == 1
    assert metrics.requests.values["m", "ttft", "yes"] == 1


@pytest.mark.parametrize(
    ("prompt_tokens", "met"),
    [
        pytest.param(1000, "no", id="a short prompt has what all have"),
        pytest.param(4000, "yes", id="a long one has three times what it takes alone"),
        pytest.param(None, "no", id="one of unknown length has what all have"),
    ],
)
def test_where_targets_follow_the_prompt_each_is_held_to_its_own(
    prompt_tokens: int | None, met: str
) -> None:
    metrics = TargetMetrics(SloConfig(ttft_s=0.5, ttft_unloaded_ratio=3.0))
    metrics.alone_s = lambda model, tokens: tokens / 10_000 if model == "m" else 0.0
    metrics.finished(ended(first_token_s=1.0, prompt_tokens=prompt_tokens), "m")
    assert metrics.requests.values == {("m", "ttft", met): 1, ("m", "all", met): 1}


def test_what_a_replica_takes_alone_is_asked_of_the_governor() -> None:
    world = World(ControlConfig(), MODELS["linear"])
    for at in range(5):
        world.arrive(10.0 * at, prompt_tokens=2000, output_tokens=4)
    world.run()
    governor = world.controller.governor
    assert governor.alone_s("m", 2000) == pytest.approx(0.2, rel=0.1)
    assert governor.alone_s("another", 2000) == 0.0
