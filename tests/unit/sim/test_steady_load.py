"""An engine under a steady load: against closed forms, and against a whole simulation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.make_engine import make_single
from mileage.sim.node import ReplicaSpec
from mileage.sim.sequence import Sequence
from mileage.sim.simulation import Simulation
from mileage.sim.steady_load import SteadyFigures, run_steady
from mileage.workload.trace_request import TraceRequest

DEPLOYMENT = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"))
CONFIG = EngineConfig(kv_blocks=20_000, running_max=64, prefix_cache=False)
TABLE = DEPLOYMENT.step_table(64, CONFIG.step_tokens_max)
PROMPT, OUTPUT = 500, 250


def alike() -> Iterator[Sequence]:
    return (Sequence(number, PROMPT, OUTPUT) for number in count(1))


def steady(
    in_flight: int, *, config: EngineConfig = CONFIG, table: StepTable = TABLE
) -> SteadyFigures:
    engine = make_single(config, table, Random(0))
    found = run_steady(engine, alike(), in_flight=in_flight, warm_up=2 * in_flight, measured=64)
    assert found is not None
    return found


def test_one_request_after_the_other_takes_its_prompt_and_its_steps() -> None:
    prompt_s = TABLE.step_s(0, 0, PROMPT, PROMPT * (PROMPT + 1) / 2)
    steps_s = sum(TABLE.step_s(1, PROMPT + step) for step in range(1, OUTPUT))
    found = steady(1)
    assert found.ttft_p50_s == pytest.approx(prompt_s)
    assert found.itl_mean_s == pytest.approx(steps_s / (OUTPUT - 1), rel=1e-3)
    assert found.output_tokens_per_s == pytest.approx(OUTPUT / (prompt_s + steps_s), rel=1e-3)
    assert found.running_mean == pytest.approx(1.0)
    assert found.preemptions == 0


def test_little_s_law_holds() -> None:
    found = steady(16)
    spent_s = found.ttft_p50_s + (OUTPUT - 1) * (found.itl_mean_s or 0.0)
    assert found.requests_per_s * spent_s == pytest.approx(16, rel=0.05)
    assert found.running_mean == pytest.approx(16, rel=0.05)


def test_a_cap_makes_the_others_wait() -> None:
    config = EngineConfig(kv_blocks=20_000, running_max=4, prefix_cache=False)
    found = steady(16, config=config)
    assert found.running_mean == pytest.approx(4, rel=0.02)
    waits_s = 12 / found.requests_per_s
    assert found.ttft_p50_s == pytest.approx(waits_s, rel=0.25)


def test_a_cache_that_is_too_small_preempts() -> None:
    config = EngineConfig(kv_blocks=300, running_max=64, prefix_cache=False)
    assert steady(16, config=config).preemptions > 0


def test_what_can_never_fit_has_no_figures() -> None:
    config = EngineConfig(kv_blocks=10, running_max=64, prefix_cache=False)
    engine = make_single(config, TABLE, Random(0))
    assert run_steady(engine, alike(), in_flight=2, warm_up=0, measured=1) is None
    late = Sequence(1, PROMPT, OUTPUT)
    late.arrived_s = 1.0
    assert run_steady(engine, iter([late]), in_flight=None, warm_up=0, measured=1) is None


def test_requests_at_a_rate_fare_as_in_a_simulation_without_a_governor() -> None:
    random, now_s, times = Random(3), 0.0, []
    for _ in range(80):
        now_s += random.expovariate(12.0)
        times.append(now_s)
    trace = [
        TraceRequest(arrived_s=at_s, prompt_tokens=PROMPT, output_tokens=OUTPUT) for at_s in times
    ]
    spec = ReplicaSpec(name="r", engine=CONFIG, table=TABLE, models=("m",), gpus=1)
    control = ControlConfig(governor=GovernorConfig(mode="off"))
    result = Simulation([spec], control=control).run(trace)

    sequences = [Sequence(number, PROMPT, OUTPUT) for number in range(1, 81)]
    for sequence, at_s in zip(sequences, times, strict=True):
        sequence.arrived_s = at_s
    engine = make_single(CONFIG, TABLE, Random(0))
    found = run_steady(engine, iter(sequences), in_flight=None, warm_up=0, measured=80)
    assert found is not None
    ttft_s = [each.first_token_s - each.arrived_s for each in sequences]
    assert ttft_s == pytest.approx(list(result.outcomes.ttft_s))
    assert found.ttft_p99_s == pytest.approx(max(ttft_s))
    until_s = result.start_s + result.duration_s
    assert found.output_tokens_per_s == pytest.approx(80 * OUTPUT / until_s)
