"""What the driver refuses: requests that no trace may have, fleets that cannot be told apart."""

from __future__ import annotations

import math

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError, TraceError
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table

TABLE = linear_table((0.01, 2e-4, 1e-6, 5e-5, 1e-8))
ENGINE = EngineConfig(kv_blocks=500, running_max=32, step_tokens_max=256)
OFF = ControlConfig(governor=GovernorConfig(mode="off"))


def simulate(requests: list[TraceRequest]) -> None:
    Simulation([ReplicaSpec(name="r", engine=ENGINE, table=TABLE)], control=OFF).run(requests)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"arrived_s": 1.0}, "arrived_s", id="before the one before it"),
        pytest.param({"prompt_tokens": 0}, "prompt_tokens", id="no prompt"),
        pytest.param({"output_tokens": 0}, "output_tokens", id="no answer"),
        pytest.param({"arrived_s": math.inf}, "arrived_s", id="never"),
    ],
)
def test_a_request_that_no_trace_may_have_is_named(fields: dict[str, float], says: str) -> None:
    good = TraceRequest(arrived_s=2.0, prompt_tokens=1, output_tokens=1)
    with pytest.raises(TraceError, match=says) as error:
        simulate([good, msgspec.structs.replace(good, **fields)])
    assert error.value.line == 2


def test_blocks_of_a_trace_that_do_not_divide_the_engines_are_refused() -> None:
    request = TraceRequest(
        arrived_s=0.0, prompt_tokens=100, output_tokens=1, prefix_blocks=(1, 2), block_tokens=24
    )
    with pytest.raises(ConfigError, match="block_tokens"):
        simulate([request])


@pytest.mark.parametrize("names", [(), ("a", "a")])
def test_replicas_have_names_of_their_own(names: tuple[str, ...]) -> None:
    specs = [ReplicaSpec(name=name, engine=ENGINE, table=TABLE) for name in names]
    with pytest.raises(ConfigError, match="replicas"):
        Simulation(specs, control=OFF)
