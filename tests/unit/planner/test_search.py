"""Search: what is simulated on which window, and what is certain at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.figures import Figures
from mileage.planner.goal import Goal
from mileage.planner.search import SearchConfig, Task, cost_floor, hopeless, search
from mileage.planner.traffic import Traffic
from mileage.planner.windows import Rung
from mileage.workload.trace_request import TraceRequest

TRAFFIC = Traffic.of(
    TraceRequest(arrived_s=0.5 * at, prompt_tokens=100, output_tokens=20) for at in range(4000)
)
WORLD = World(goal=Goal(), rank_by="gpu_hours")
CANDIDATES = [
    Candidate(gpu="A10", replicas=replicas, running_max=running_max)
    for replicas in (1, 2, 3, 4, 6, 8)
    for running_max in (16, 32, 64, 128)
]


def figures(cost: float, attainment: float, latency_s: float) -> Figures:
    return Figures(
        requests=100,
        answered=100,
        attainment_ratio=attainment,
        feasible=attainment >= WORLD.goal.attainment_ratio,
        caught_up=True,
        ttft_s=latency_s,
        itl_s=latency_s / 10,
        usd_per_mtok=None,
        gpu_h_per_mtok=cost,
        cost=cost,
        gpus=1,
        gpu_hours=1.0,
        output_tokens_per_s=1.0,
        busy_ratio=0.5,
        kv_peak_ratio=0.5,
        running_mean=1.0,
        waiting_mean=0.0,
        preemptions=0,
        prefix_hit_ratio=None,
        duration_s=1.0,
    )


class Fake:
    """Set-ups that keep the goal from so many replicas on; `misled`: windows say the contrary."""

    def __init__(self, enough: int, *, misled: bool = False) -> None:
        self.enough, self.misled, self.tasks = enough, misled, list[Task]()

    def __call__(self, tasks: Sequence[Task]) -> list[Figures]:
        self.tasks += tasks
        return [self.one(task) for task in tasks]

    def one(self, task: Task) -> Figures:
        candidate = task.candidate
        good = candidate.replicas >= self.enough and candidate.running_max >= 64
        if self.misled and not task.rung.whole:
            good = not good
        latency_s = 1.0 / candidate.replicas + candidate.running_max / 1e4
        return figures(cost_floor(candidate, TRAFFIC, WORLD), 0.99 if good else 0.9, latency_s)


@pytest.mark.parametrize("misled", [False, True])
@pytest.mark.parametrize("enough", [1, 3, 8])
def test_the_cheapest_is_found_whatever_windows_say(enough: int, misled: bool) -> None:
    fake = Fake(enough, misled=misled)
    found = search(CANDIDATES, TRAFFIC, WORLD, fake, SearchConfig(keep_min=4, batch=4))
    best = min((s for s in found.seen if s.figures.feasible), key=lambda s: s.figures.cost)
    assert found.certain
    assert best.candidate.replicas == enough
    order = [CANDIDATES.index(each.candidate) for each in found.seen]
    assert order == sorted(order)


def test_most_are_simulated_on_the_short_windows_only() -> None:
    fake = Fake(3)
    found = search(CANDIDATES, TRAFFIC, WORLD, fake, SearchConfig(keep_min=4, batch=4))
    counts = [each.candidates for each in found.rounds]
    assert counts[0] == len(CANDIDATES)
    assert found.rounds[0].share_ratio < 0.5
    assert len(found.seen) < len(CANDIDATES) * 2 / 3
    assert len({(t.candidate, t.rung) for t in fake.tasks}) == len(fake.tasks)


def test_where_nothing_keeps_the_goal_all_that_may_was_looked_at() -> None:
    fake = Fake(100)
    found = search(CANDIDATES, TRAFFIC, WORLD, fake, SearchConfig(keep_min=4, batch=4))
    assert found.certain
    assert not any(each.figures.feasible for each in found.seen)
    # The most replicas of each set-up; fewer do no better.
    seen = {(each.candidate.replicas, each.candidate.running_max) for each in found.seen}
    assert {(8, 16), (8, 32), (8, 64), (8, 128)} <= seen


def test_too_many_to_look_at_is_said() -> None:
    found = search(
        CANDIDATES,
        TRAFFIC,
        WORLD,
        Fake(8, misled=True),
        SearchConfig(keep_min=4, batch=4, whole_max=6),
    )
    assert not found.certain
    assert len(found.seen) <= 8


def test_a_window_is_hopeless_where_its_misses_are_too_many_for_the_trace() -> None:
    window = Rung(start=0, stop=1000, share_ratio=0.25)
    assert hopeless(figures(1.0, 0.7, 1.0), window, WORLD)
    assert not hopeless(figures(1.0, 0.8, 1.0), window, WORLD)


def test_nothing_to_choose_among_is_nothing_found() -> None:
    found = search([], TRAFFIC, WORLD, Fake(1))
    assert found.seen == ()
    assert found.certain


def test_a_card_without_a_price_is_no_bargain() -> None:
    world = World(goal=Goal(), usd_per_gpu_hour={"A10": 2.0})
    assert cost_floor(Candidate(gpu="H20"), TRAFFIC, world) == math.inf
    usd = cost_floor(Candidate(gpu="A10", replicas=2), TRAFFIC, world)
    assert usd == pytest.approx(2 * 2.0 * 1999.5 / 3600 / 80_000 * 1e6)
