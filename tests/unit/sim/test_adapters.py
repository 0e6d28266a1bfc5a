"""LoRA adapters: who runs beside whom, how often one is loaded, and what steps cost, by hand."""

from __future__ import annotations

import math

import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.sim.adapter_slots import AdapterSlots
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import AdaptersConfig
from mileage.sim.node import ReplicaSpec
from mileage.sim.sequence import Sequence
from mileage.sim.simulation import Simulation
from mileage.workload.trace_request import TraceRequest
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.01, 0.0, 0.0, 0.0, 0.0))
"""Every step takes 10 ms."""


def _config(**keys: float) -> EngineConfig:
    adapters = AdaptersConfig(**keys)  # type: ignore[arg-type]
    return EngineConfig(kv_blocks=500, running_max=8, step_tokens_max=64, adapters=adapters)


def _run(config: EngineConfig, *wanted: tuple[float, str | None, int]) -> list[Sequence]:
    """Of requests (arrival, adapter, output tokens)."""
    sequences = []
    for number, (_, adapter, output) in enumerate(wanted):
        sequence = Sequence(number, 4, output)
        sequence.adapter = adapter
        sequences.append(sequence)
    arrivals = [(each[0], sequence) for each, sequence in zip(wanted, sequences, strict=True)]
    run_engine(config, _TABLE, arrivals)
    return sequences


def test_a_step_waits_for_an_adapter_once_and_never_for_the_base_model() -> None:
    first, again, plain = _run(
        _config(slots=2, load_s=0.5), (0.0, "a", 1), (1.0, "a", 1), (2.0, None, 1)
    )
    assert first.finished_s == pytest.approx(0.51)
    assert again.finished_s == pytest.approx(1.01)
    assert plain.finished_s == pytest.approx(2.01)


def test_the_least_recently_used_adapter_goes_and_is_loaded_again() -> None:
    slots = AdapterSlots(AdaptersConfig(slots=2, load_s=1.0))
    for adapter, waits_s in [("a", 1), ("b", 1), ("a", 0), ("c", 1), ("a", 0), ("b", 1), ("c", 1)]:
        assert slots.begin(adapter, 0.0) == waits_s
        slots.end(adapter)
    assert slots.loads == 5
    assert slots.fetches == 3


def test_what_is_not_in_the_hosts_memory_is_read_first() -> None:
    slots = AdapterSlots(AdaptersConfig(slots=1, load_s=1.0, host_slots=2, fetch_s=10.0))
    for adapter, waits_s in [("a", 11), ("b", 11), ("a", 1), ("c", 11), ("b", 11), ("b", 0)]:
        assert slots.begin(adapter, 0.0) == waits_s
        slots.end(adapter)


def test_a_request_whose_adapter_has_no_slot_waits_and_others_overtake_it() -> None:
    one, two, other, base = _run(
        _config(slots=1), (0.0, "a", 10), (0.0, "b", 2), (0.0, "a", 2), (0.025, None, 1)
    )
    assert one.finished_s == pytest.approx(0.1)
    assert other.finished_s == pytest.approx(0.02)
    assert base.finished_s == pytest.approx(0.04)
    assert two.first_token_s == pytest.approx(0.11)


def test_each_adapter_in_use_adds_to_every_step() -> None:
    one, two = _run(_config(slots=2, step_s=0.001), (0.0, "a", 5), (0.0, "b", 9))
    assert one.finished_s == pytest.approx(5 * 0.012)
    assert two.finished_s == pytest.approx(5 * 0.012 + 4 * 0.011)
    assert two.itl_p99_s == pytest.approx(0.012)


def test_a_trace_names_its_adapters_and_the_result_counts_loads() -> None:
    requests = [
        TraceRequest(
            arrived_s=float(i), prompt_tokens=4, output_tokens=1, adapter="abc"[i % 3], model="m"
        )
        for i in range(12)
    ]
    loads = {}
    for slots in (1, 2, 3):
        spec = ReplicaSpec(
            name="r", engine=_config(slots=slots, load_s=0.1), table=_TABLE, models=("m",)
        )
        control = ControlConfig(governor=GovernorConfig(mode="off"))
        result = Simulation([spec], control=control).run(requests)
        loads[slots] = result.replicas[0].adapter_loads
        assert result.outcomes.ttft_s[11] == pytest.approx(0.01 if slots == 3 else 0.11)
    # Three in turn over fewer places that go by the least recent use: never there when needed.
    assert loads == {1: 12, 2: 12, 3: 3}


def test_without_the_key_adapters_cost_nothing() -> None:
    config = EngineConfig(kv_blocks=500, running_max=8, step_tokens_max=64)
    sequences = _run(config, *((0.0, name, 3) for name in "abcdefgh"))
    assert [each.finished_s for each in sequences] == pytest.approx([0.03] * 8)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        pytest.param({"slots": 0}, "slots", id="no slot"),
        pytest.param({"slots": 4, "host_slots": 3}, "host_slots", id="less in the host"),
        pytest.param({"load_s": math.nan}, "load_s", id="no number"),
    ],
)
def test_adapters_that_cannot_be_are_refused(keys: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"engine\.adapters\.{named}"):
        AdaptersConfig(**keys)  # type: ignore[arg-type]
