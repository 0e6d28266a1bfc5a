"""Runs a deployment under its load in the simulator: some short, seeded runs, each pair once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from mileage.core.errors import ConfigError
from mileage.doctor.gain.changed import Pair
from mileage.doctor.gain.load import Load
from mileage.doctor.gain.setup import BLOCK_TOKENS, engine_of, kv_blocks_of
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.interval import Interval
from mileage.sim.make_engine import make_single
from mileage.sim.sequence import Sequence
from mileage.sim.steady_load import SteadyFigures, run_steady

__all__ = ["RUNS", "Figures", "Simulator"]

RUNS: Final = (0.0, 0.5, 1.0)
"""One run at the lower end of what is known within bounds, one in the middle, one at its upper end.
Each has a seed of its own, so that what chance does shows as well."""

MEASURED: Final = 120
"""Requests that a run's figures are of."""
WARM_UP_MIN: Final = 40
"""Requests before them; as many as are in flight where those are more."""
IN_FLIGHT_MAX: Final = 512
ARRIVALS_MAX: Final = 5_000
"""Requests that come at a rate: an engine that does not keep up with more shows that with these."""
STEPS_MAX: Final = 4_000
"""Of a run, about: a diagnosis must not take long. Larger ones are for `mileage simulate`."""

LOOKED_AT: Final = 16.0
"""Requests whose drafts are looked at one by one take as long as a step."""
LIMIT_MAX: Final = 65_536
"""Of requests and tokens of a step: tables of steps have so many rows."""
TOKENS_MAX: Final = 200_000
"""Of a request."""
LARGE: Final = Unsimulated("the load is large: `mileage simulate` takes the time that it needs")

Figures = tuple[SteadyFigures, ...]
"""Of one replica, of each of `RUNS`."""


class Simulator:
    """Keeps what it has simulated: findings of one diagnosis share the present state."""

    def __init__(self) -> None:
        self._known: dict[tuple[Pair, Pair], Figures | Unsimulated] = {}

    def figures(self, pair: Pair, present: Pair) -> Figures | Unsimulated:
        """Of a deployment under its load; `present`: before the change, or the same one."""
        key = (pair, present)
        if key not in self._known:
            self._known[key] = _simulated(pair, present)
        return self._known[key]


def in_flight_of(pair: Pair, place: float) -> int | None:
    """Requests that one replica has at a time; None: they come at a rate."""
    if pair.load.in_flight is None:
        return None
    return max(1, round(_at(pair.load.in_flight, place) / pair.setup.replicas))


def _simulated(pair: Pair, present: Pair) -> Figures | Unsimulated:
    if _is_large(pair):
        return LARGE
    blocks = kv_blocks_of(pair.setup, present.setup)
    if isinstance(blocks, Unsimulated):
        return blocks
    try:
        config = engine_of(pair.setup, blocks)
        sizes = None if pair.setup.graphs else ()
        table = pair.setup.deployment.step_table(config.rows_max, config.step_tokens_max, sizes)
    except ConfigError as error:
        return Unsimulated(f"the simulated engine does not do it: {error}")
    found = []
    for seed, place in enumerate(RUNS):
        in_flight = in_flight_of(pair, place)
        warm_up = max(WARM_UP_MIN, in_flight or 0)
        chunks = math.ceil(_at(pair.load.prompt_tokens, place) / config.step_tokens_max)
        steps = (warm_up + MEASURED) * (1 + chunks + _single_steps(pair, place))
        if (in_flight or 0) > IN_FLIGHT_MAX or steps > STEPS_MAX:
            return LARGE
        random = Random(seed)  # noqa: S311 (no secret)
        figures = run_steady(
            make_single(config, table, random),
            islice(_requests(pair.load, pair.setup.replicas, place, random), ARRIVALS_MAX),
            in_flight=in_flight,
            warm_up=warm_up,
            measured=MEASURED,
        )
        if figures is None:
            return Unsimulated("such requests do not fit into the engine's KV cache")
        found.append(figures)
    return tuple(found)


def _single_steps(pair: Pair, place: float) -> float:
    """Of a request: steps that are no part of a stretch, as those with drafts are."""
    drafts = pair.setup.speculation
    if drafts is None:
        return 0.0
    together = min(in_flight_of(pair, place) or 1, pair.setup.requests_max)
    each = _at(pair.load.output_tokens, place) / drafts.tokens_mean / together
    return each * (1.0 + together / LOOKED_AT)


def _is_large(pair: Pair) -> bool:
    tokens = pair.load.prompt_tokens.plus(pair.load.output_tokens).high
    limit = max(pair.setup.requests_max, pair.setup.step_tokens_max)
    return tokens > TOKENS_MAX or limit > LIMIT_MAX


def _requests(load: Load, replicas: int, place: float, random: Random) -> Iterator[Sequence]:
    prompt, output = _at(load.prompt_tokens, place), _at(load.output_tokens, place)
    shared = min(int(_at(load.shared_tokens, place)), max(0, round(prompt) - 1))
    rate = None if load.rate_rps is None else _at(load.rate_rps, place) / replicas
    most, least = 1.0 + load.spread_ratio, 1.0 - load.spread_ratio
    blocks = range(shared // BLOCK_TOKENS)
    number, now_s = 0, 0.0
    while True:
        number += 1
        group = random.randrange(load.groups)
        sequence = Sequence(
            number,
            max(1, shared + round((prompt - shared) * random.uniform(least, most))),
            max(1, round(output * random.uniform(least, most))),
            tuple((group, block) for block in blocks),
            BLOCK_TOKENS,
        )
        if rate is not None:
            now_s += random.expovariate(rate)
            sequence.arrived_s = now_s
        yield sequence


def _at(value: Interval, place: float) -> float:
    return value.low + place * (value.high - value.low)
