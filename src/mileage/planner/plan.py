"""Plan: the set-ups worth choosing, what each costs and is bound by, and what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mileage.costmodel.memory import MemoryUse
from mileage.measure.pareto import Objective, non_dominated
from mileage.measure.pareto import picks as named_picks
from mileage.planner.assumptions import assumptions
from mileage.planner.binding import Binding, binding
from mileage.planner.bounds import Bounds
from mileage.planner.built import Builder, Built
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.figures import Figures
from mileage.planner.search import Evaluate, Round, SearchConfig, Seen, search
from mileage.planner.space import Impossible, Space
from mileage.planner.traffic import Traffic

__all__ = ["PICKS", "Choice", "Plan", "Ruled", "make_plan"]

PICKS: Final = ("cheapest", "low_latency", "throughput", "balanced")
_OBJECTIVES: Final = (
    Objective(name="ttft_s", sense="min"),
    Objective(name="itl_s", sense="min"),
    Objective(name="cost", sense="min"),
)
_SAME_COST_RATIO: Final = 0.005
"""Of the lowest cost: what is not worth a longer wait."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A set-up, with all that is told of it."""

    candidate: Candidate
    figures: Figures
    memory: MemoryUse
    kv_tokens: int
    """Of context that a replica has room for."""
    binding: Binding


class Ruled(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates that nothing could save, by what they cannot."""

    limit: str
    candidates: int
    example: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a search."""

    picks: dict[str, Choice | None]
    """`cheapest` of those that keep the goal; `low_latency`: the least TTFT of these; `balanced`:
    nearest to the best of everything, of these; `throughput`: the most tokens for the cost, of all
    that catch up, whatever the latency."""
    closest: Choice | None
    """Where none keeps the goal: what comes nearest to it."""
    cheaper: Choice | None
    """What costs less than the cheapest and comes nearest to the goal: it shows what fails."""
    pareto: tuple[Choice, ...]
    """The exact front of TTFT, ITL and cost, of all that were simulated on the whole trace and
    catch up; cheapest first."""
    seen: tuple[Seen, ...]
    """All that were simulated on the whole trace."""
    ranked_by: str
    simulated: tuple[Round, ...]
    candidates: int
    """That can be built."""
    impossible: tuple[Impossible, ...]
    ruled_out: tuple[Ruled, ...]
    certain: bool
    """Nothing in the space keeps the goal for less, but for 2 %."""
    assumptions: tuple[str, ...]


def make_plan(
    space: Space,
    builder: Builder,
    traffic: Traffic,
    world: World,
    evaluate: Evaluate,
    *,
    config: SearchConfig | None = None,
    price_sources: Mapping[str, str | None] | None = None,
) -> Plan:
    """Bounds prune, the simulator decides."""
    explored = space.explore(builder)
    bounds = Bounds(traffic, world.goal)
    alive, ruled = _pruned(explored.candidates, builder, bounds)
    found = search(alive, traffic, world, evaluate, config)
    choices = {
        each.candidate: _choice(each, builder.build(each.candidate), traffic, world, bounds)
        for each in found.seen
        if each.figures.problem is None
    }
    kept = [each for each in found.seen if each.figures.feasible]
    caught_up = [each for each in found.seen if each.figures.caught_up]
    front = sorted(_front(caught_up), key=lambda each: each.figures.cost)
    picked = _picked(kept, caught_up)
    closest = None
    if not kept and choices:
        closest = max(choices.values(), key=lambda each: each.figures.attainment_ratio)
    return Plan(
        picks={
            name: None if seen is None else choices[seen.candidate] for name, seen in picked.items()
        },
        closest=closest,
        cheaper=_cheaper(choices, picked["cheapest"]),
        pareto=tuple(choices[each.candidate] for each in front),
        seen=found.seen,
        ranked_by=world.rank_by,
        simulated=found.rounds,
        candidates=len(explored.candidates),
        impossible=explored.impossible,
        ruled_out=ruled,
        certain=found.certain,
        assumptions=assumptions(builder, traffic, world, explored.candidates, price_sources or {}),
    )


def _pruned(
    candidates: Sequence[Candidate], builder: Builder, bounds: Bounds
) -> tuple[list[Candidate], tuple[Ruled, ...]]:
    alive: list[Candidate] = []
    ruled: dict[str, list[str]] = {}
    for each in candidates:
        why = bounds.out_of_reach(builder.build(each))
        if why is None:
            alive.append(each)
        else:
            ruled.setdefault(why.limit, []).append(f"{each.label}: {why.text}")
    return alive, tuple(
        Ruled(limit=limit, candidates=len(texts), example=texts[0])
        for limit, texts in ruled.items()
    )


def _choice(seen: Seen, built: Built, traffic: Traffic, world: World, bounds: Bounds) -> Choice:
    return Choice(
        candidate=seen.candidate,
        figures=seen.figures,
        memory=built.memory,
        kv_tokens=built.kv_tokens,
        binding=binding(built, seen.figures, traffic, world.goal, bounds.load_ratio(built)),
    )


def _points(seen: Sequence[Seen]) -> list[dict[str, float | None]]:
    return [
        {"ttft_s": s.figures.ttft_s, "itl_s": s.figures.itl_s, "cost": s.figures.cost} for s in seen
    ]


def _objectives(seen: Sequence[Seen]) -> tuple[Objective, ...]:
    """Answers of one token have no gaps: then nothing is said of them."""
    if any(each.figures.itl_s is not None for each in seen):
        return _OBJECTIVES
    return tuple(each for each in _OBJECTIVES if each.name != "itl_s")


def _front(seen: Sequence[Seen]) -> list[Seen]:
    on = non_dominated(_points(seen), _objectives(seen))
    return [each for each, first in zip(seen, on, strict=True) if first]


def _cheaper(choices: Mapping[Candidate, Choice], cheapest: Seen | None) -> Choice | None:
    if cheapest is None:
        return None
    below = [
        each
        for each in choices.values()
        if not each.figures.feasible and each.figures.cost < cheapest.figures.cost
    ]
    return max(below, key=lambda each: each.figures.attainment_ratio, default=None)


def _picked(kept: Sequence[Seen], caught_up: Sequence[Seen]) -> dict[str, Seen | None]:
    within, fast = (
        named_picks(_points(seen), _objectives(seen), latency="ttft_s", throughput="cost")
        for seen in (kept, caught_up)
    )

    def at(seen: Sequence[Seen], index: int | None) -> Seen | None:
        return None if index is None else seen[index]

    return {
        "cheapest": _cheapest(kept),
        "low_latency": at(kept, within.low_latency),
        "throughput": at(caught_up, fast.throughput),
        "balanced": at(kept, within.balanced),
    }


def _cheapest(kept: Sequence[Seen]) -> Seen | None:
    """The lowest cost; of those that cost as much, the one whose first tokens come soonest."""
    if not kept:
        return None
    most = min(each.figures.cost for each in kept) * (1.0 + _SAME_COST_RATIO)
    near = [each for each in kept if each.figures.cost <= most]
    return min(near, key=lambda each: (each.figures.ttft_s or 0.0, each.figures.itl_s or 0.0))
