"""The simulator against queueing theory: mean waits of one server, Lindley, and Little's law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.sequence import Sequence
from mileage.sim.simulation import SimConfig, Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table, run_engine

_STEP_S = 1e-3
"""Each step takes this long, whatever is in it: a request of n tokens takes n of them."""
_TABLE = linear_table((_STEP_S, 0.0, 0.0, 0.0, 0.0))
_ONE_AT_A_TIME = EngineConfig(kv_blocks=10**6, running_max=1, step_tokens_max=512)
_MEAN_STEPS = 1000

Draw = Callable[[Random], int]


def _constant(random: Random) -> int:
    return _MEAN_STEPS


def _exponential(random: Random) -> int:
    """Geometric with that mean: exponential in units of a thousandth of it."""
    return 1 + int(math.log(1.0 - random.random()) / math.log(1.0 - 1.0 / _MEAN_STEPS))


def _waits(load: float, draw: Draw, count: int, seed: int) -> tuple[float, float]:
    """The mean wait in units of the mean service, and what Lindley's recursion makes of it."""
    random = Random(seed)
    waits = np.empty(count)
    arrived = np.empty(count)
    lindley = 0.0
    previous: tuple[float, float] | None = None
    expected = 0.0

    def requests() -> Iterator[tuple[float, Sequence]]:
        nonlocal lindley, previous, expected
        now_s = 0.0
        for index in range(count):
            now_s += random.expovariate(load / (_MEAN_STEPS * _STEP_S))
            steps = draw(random)
            if previous is not None:
                lindley = max(0.0, lindley + previous[1] - (now_s - previous[0]))
            previous = (now_s, steps * _STEP_S)
            expected += lindley
            arrived[index] = now_s
            yield now_s, Sequence(index, 1, steps)

    def ended(sequence: Sequence) -> None:
        waits[sequence.id] = sequence.first_token_s - _STEP_S - arrived[sequence.id]

    run_engine(_ONE_AT_A_TIME, _TABLE, requests(), ended=ended)
    return float(waits.mean()) / (_MEAN_STEPS * _STEP_S), expected / count


@pytest.mark.parametrize(
    ("draw", "variation"),
    [
        pytest.param(_constant, 0.0, id="M/D/1"),
        pytest.param(_exponential, 1.0, id="M/M/1"),
    ],
)
def test_the_mean_wait_of_one_server_is_that_of_theory(draw: Draw, variation: float) -> None:
    load, count = 0.5, 60_000
    waits, lindleys = zip(*(_waits(load, draw, count, seed) for seed in (1, 2)), strict=True)
    # On each path exactly what the recursion says, ...
    np.testing.assert_allclose(waits, np.array(lindleys) / (_MEAN_STEPS * _STEP_S), rtol=1e-6)
    # ... and on average what Pollaczek and Khinchine say.
    expected = load * (1 + variation) / (2 * (1 - load))
    assert np.mean(waits) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("mode", ["off", "act"])
def test_requests_in_the_system_are_their_rate_times_their_time(mode: str) -> None:
    random = Random(3)
    table = linear_table((0.01, 2e-4, 1e-6, 5e-5, 1e-8))
    engine = EngineConfig(kv_blocks=300, running_max=16, step_tokens_max=128)
    simulation = Simulation(
        [ReplicaSpec(name=name, engine=engine, table=table) for name in "abc"],
        control=ControlConfig(governor=GovernorConfig(mode=mode)),  # type: ignore[arg-type]
        config=SimConfig(),
    )
    now_s, requests = 0.0, []
    for _ in range(400):
        now_s += random.expovariate(40.0)
        requests.append(
            TraceRequest(
                arrived_s=now_s,
                prompt_tokens=random.randint(1, 500),
                output_tokens=random.randint(1, 120),
            )
        )
    result = simulation.run(requests)
    spent_s = sum(result.outcomes.e2e_s)
    in_engines_s = sum(each.running_s + each.waiting_s for each in result.replicas)
    if mode == "off":  # every one is at an engine from its arrival to its end
        assert in_engines_s == pytest.approx(spent_s, rel=1e-9)
    else:  # some are held before
        assert 0.5 * spent_s < in_engines_s < spent_s
    assert all(status == 0 for status in result.outcomes.status)
    assert sum(result.outcomes.preemptions) == sum(each.preemptions for each in result.replicas) > 0
