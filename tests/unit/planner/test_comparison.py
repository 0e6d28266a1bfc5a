"""Deployments side by side: by hand."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.planner.comparison import DeploymentCard, Quality, compare_deployments


def quality(score: float, measure: str = "HumanEval pass@1") -> Quality:
    return Quality(score=score, measure=measure, source="measured here")


def card(name: str, **fields: Any) -> DeploymentCard:
    return DeploymentCard(name=name, model="m", form="GGUF Q4_K_M", **fields)


LAPTOP = card("laptop", usd_per_hour=0.036, requests_per_s=0.1, quality=quality(0.4))
CLOUD = card("cloud", usd_per_hour=7.2, requests_per_s=4, cards=2, quality=quality(0.8))
EDGE = card("edge", usd_per_hour=0.018, requests_per_s=0.025, quality=quality(0.35))


def test_by_hand() -> None:
    laptop, cloud, edge = compare_deployments([LAPTOP, CLOUD, EDGE])
    assert laptop.usd_per_request == pytest.approx(0.0001)
    assert cloud.usd_per_request == pytest.approx(0.0005)
    assert laptop.usd_per_solved_task == pytest.approx(0.00025)
    assert cloud.usd_per_solved_task == pytest.approx(0.000625)
    assert cloud.requests_per_card_day == pytest.approx(4 * 86_400 / 2)
    # The edge device costs twice the laptop's a task, and is right less often.
    assert (laptop.on_front, cloud.on_front, edge.on_front) == (True, True, False)


def test_a_task_of_many_calls_costs_as_many() -> None:
    (agent,) = compare_deployments(
        [card("agent", usd_per_hour=0.036, requests_per_s=0.1, requests_per_task=12.5)]
    )
    assert agent.usd_per_task == pytest.approx(0.00125)
    assert agent.usd_per_solved_task is None


def test_what_is_not_known_is_none() -> None:
    unpriced, idle = compare_deployments(
        [card("unpriced", requests_per_s=2.0), card("idle", usd_per_hour=1.0, requests_per_s=0.0)]
    )
    assert (unpriced.usd_per_request, unpriced.usd_per_task) == (None, None)
    assert unpriced.requests_per_card_day == pytest.approx(172_800)
    assert (idle.usd_per_request, idle.requests_per_card_day) == (None, 0.0)


def test_scores_of_other_measures_are_not_compared() -> None:
    other = card("other", usd_per_hour=1, requests_per_s=1, quality=quality(0.9, "MMLU"))
    assert [each.on_front for each in compare_deployments([LAPTOP, other])] == [None, None]


@pytest.mark.parametrize(
    ("make", "key"),
    [
        pytest.param(lambda: compare_deployments([LAPTOP, LAPTOP]), "name", id="one name twice"),
        pytest.param(lambda: quality(80), "*.quality.score", id="percent"),
        pytest.param(lambda: quality(0.8, " "), "*.quality.measure", id="a bare number"),
        pytest.param(lambda: card("a", cards=0), "cards", id="no card"),
        pytest.param(lambda: card("a", usd_per_hour=float("nan")), "usd_per_hour", id="no number"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
