"""Search: successive halving over windows of a trace; what is chosen was simulated on all of it.

Jamieson and Talwalkar (2016, Non-stochastic Best Arm Identification and Hyperparameter
Optimization), with two changes. What a candidate costs is nearly known before it is simulated, so
that cheap ones are looked at until one surely keeps the goal; and at the end every one that would
be cheaper than the best by more than a tolerance is simulated on the whole trace, unless it was
shown that it does not keep the goal: so the best is within that tolerance of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final, TypeAlias

import msgspec

from mileage.measure.pareto import Objective, non_dominated
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.figures import Figures
from mileage.planner.traffic import Traffic
from mileage.planner.windows import Rung, rungs

__all__ = ["Evaluate", "Found", "Round", "SearchConfig", "Seen", "Task", "cost_floor", "search"]

_FRONT: Final = (
    Objective(name="ttft_s", sense="min"),
    Objective(name="itl_s", sense="min"),
    Objective(name="cost", sense="min"),
)
_PER_COST: Final = 3
_SURE_COSTS: Final = 3
"""Of cheap ones: so many of each cost, until so many costs have one that surely keeps the goal."""
_HOPELESS_SLACK: Final = 0.005


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation that is to be done."""

    candidate: Candidate
    rung: Rung


Evaluate: TypeAlias = Callable[[Sequence[Task]], Sequence[Figures]]
"""Does all of them, on however many cores, and gives their figures in the same order."""


class SearchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the search goes about it."""

    keep_ratio: float = 1 / 3
    """Of the candidates: what goes on from one window to the next."""
    keep_min: int = 12
    tolerance_ratio: float = 0.02
    """Of the cost: what may be left on the table."""
    batch: int = 16
    """Simulations of the whole trace at a time, at the end."""
    whole_max: int = 200
    """Simulations of the whole trace, at the most."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that was simulated on the whole trace."""

    candidate: Candidate
    figures: Figures


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated on one window."""

    share_ratio: float
    requests: int
    candidates: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found."""

    seen: tuple[Seen, ...]
    """In the order of the candidates."""
    rounds: tuple[Round, ...]
    certain: bool
    """Every candidate that might be cheaper by more than the tolerance was looked at."""


def cost_floor(candidate: Candidate, traffic: Traffic, world: World) -> float:
    """The least that a million output tokens can cost: all GPUs, until the last request has come.
    In what the world ranks by: USD or GPU-hours."""
    hours = candidate.gpus(max(1, len(traffic.adapters))) * traffic.span_s / 3600.0
    if world.rank_by == "usd":
        usd = world.usd_per_gpu_hour.get(candidate.gpu)
        hours *= math.inf if usd is None else usd
    return hours / max(traffic.output_tokens, 1) * 1e6


def search(
    candidates: Sequence[Candidate],
    traffic: Traffic,
    world: World,
    evaluate: Evaluate,
    config: SearchConfig | None = None,
) -> Found:
    """Find those that are worth showing, and with certainty the cheapest that keeps the goal."""
    config = config or SearchConfig()
    *windows, whole = rungs(traffic)
    floors = {each: cost_floor(each, traffic, world) for each in candidates}
    alive = list(candidates)
    rounds: list[Round] = []
    last: dict[Candidate, Figures] = {}
    out: set[Candidate] = set()
    for rung in windows:
        if len(alive) <= config.keep_min:
            break
        figures = _evaluated(evaluate, alive, rung, rounds)
        last.update(figures)
        hopeful = [each for each in alive if not hopeless(figures[each], rung, world)]
        count = max(config.keep_min, math.ceil(len(alive) * config.keep_ratio))
        alive = _kept(hopeful or alive, figures, floors, count, world)
        out.update(set(figures) - set(hopeful))
    seen = _evaluated(evaluate, alive, whole, rounds)
    rest = {each: floor for each, floor in floors.items() if each not in out}
    certain = _look_below(seen, last, rest, evaluate, whole, rounds, config)
    order = {each: at for at, each in enumerate(candidates)}
    return Found(
        seen=tuple(
            Seen(candidate=each, figures=seen[each]) for each in sorted(seen, key=order.__getitem__)
        ),
        rounds=tuple(rounds),
        certain=certain,
    )


def hopeless(figures: Figures, rung: Rung, world: World) -> bool:
    """Whether those requests of the window that missed are too many for the whole trace already.

    In the window the fleet began empty, and nothing came after it: in the trace more would miss.
    """
    missed = rung.share_ratio * (1.0 - figures.attainment_ratio)
    return 1.0 - missed < world.goal.attainment_ratio - _HOPELESS_SLACK


def _evaluated(
    evaluate: Evaluate, candidates: Sequence[Candidate], rung: Rung, rounds: list[Round]
) -> dict[Candidate, Figures]:
    if not candidates:
        return {}
    figures = evaluate([Task(candidate=each, rung=rung) for each in candidates])
    requests = rung.stop - rung.start
    rounds.append(
        Round(share_ratio=rung.share_ratio, requests=requests, candidates=len(candidates))
    )
    return dict(zip(candidates, figures, strict=True))


def _kept(
    candidates: list[Candidate],
    figures: dict[Candidate, Figures],
    floors: dict[Candidate, float],
    count: int,
    world: World,
) -> list[Candidate]:
    """Those that go on, in their order: the cheapest and the front of latency and cost in turns."""
    cheap = _cheap(candidates, figures, floors, world)
    fronts = _fronts(candidates, figures, floors)
    chosen: dict[Candidate, None] = {}
    for each in chain.from_iterable(zip_longest(cheap, fronts)):
        if each is not None and len(chosen) < count:
            chosen[each] = None
    return [each for each in candidates if each in chosen]


def _cheap(
    candidates: list[Candidate],
    figures: dict[Candidate, Figures],
    floors: dict[Candidate, float],
    world: World,
) -> Iterable[Candidate]:
    """The best few of each cost, from the lowest cost on."""
    by_cost: dict[float, list[Candidate]] = {}
    for each in candidates:
        by_cost.setdefault(floors[each], []).append(each)
    sure = 0
    for cost in sorted(by_cost):
        best = sorted(by_cost[cost], key=lambda each: _order(figures[each]))
        yield from best[:_PER_COST]
        sure += figures[best[0]].attainment_ratio >= world.goal.attainment_ratio
        if sure >= _SURE_COSTS:
            return


def _order(figures: Figures) -> tuple[float, float, float]:
    """The best first, of those that cost the same."""
    late_s, gap_s = figures.ttft_s, figures.itl_s
    return (
        -figures.attainment_ratio,
        math.inf if late_s is None else late_s,
        math.inf if gap_s is None else gap_s,
    )


def _fronts(
    candidates: list[Candidate], figures: dict[Candidate, Figures], floors: dict[Candidate, float]
) -> Iterable[Candidate]:
    """The front of latency and cost, then that of all others, and so on."""
    rest = list(candidates)
    while rest:
        points = [
            {"ttft_s": figures[c].ttft_s, "itl_s": figures[c].itl_s, "cost": floors[c]}
            for c in rest
        ]
        on = non_dominated(points, _FRONT)
        if not any(on):
            yield from sorted(rest, key=lambda each: _order(figures[each]))
            return
        yield from (each for each, first in zip(rest, on, strict=True) if first)
        rest = [each for each, first in zip(rest, on, strict=True) if not first]


def _look_below(
    seen: dict[Candidate, Figures],
    last: dict[Candidate, Figures],
    floors: dict[Candidate, float],
    evaluate: Evaluate,
    whole: Rung,
    rounds: list[Round],
    config: SearchConfig,
) -> bool:
    """Simulate all that might be cheaper than the best so far, the most hopeful first. False: there
    were too many."""
    while True:
        best = min((each.cost for each in seen.values() if each.feasible), default=math.inf)
        failed = _failed(seen)
        rest = [
            each
            for each, floor in floors.items()
            if each not in seen
            and floor < best * (1.0 - config.tolerance_ratio)
            and each.replicas > failed.get(_alone(each), 0)
        ]
        if not rest:
            return True
        room = config.whole_max - len(seen)
        if room <= 0:
            return False
        rest.sort(key=lambda each: (-last[each].attainment_ratio, floors[each]))
        seen.update(_evaluated(evaluate, rest[: min(room, config.batch)], whole, rounds))


def _failed(seen: dict[Candidate, Figures]) -> dict[Candidate, int]:
    """Of each set-up the most replicas that do not keep the goal: fewer do not, either."""
    found: dict[Candidate, int] = {}
    for each, figures in seen.items():
        if not figures.feasible:
            key = _alone(each)
            found[key] = max(found.get(key, 0), each.replicas)
    return found


def _alone(candidate: Candidate) -> Candidate:
    """The set-up, whatever the number of its replicas."""
    least = 1 if candidate.sharing is None else candidate.sharing.replicas
    return msgspec.structs.replace(candidate, replicas=least)
