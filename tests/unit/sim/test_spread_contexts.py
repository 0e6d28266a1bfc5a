"""Step tables whose contexts are read side by side: with few requests they are not."""

from __future__ import annotations

import msgspec
import pytest

from mileage.control.config import ControlConfig, GovernorConfig
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.fast import support
from mileage.sim.node import ReplicaSpec
from mileage.sim.sequence import Sequence
from mileage.sim.simulation import SimConfig
from tests.support.engine_host import linear_table, run_engine

_CONFIG = EngineConfig(kv_blocks=9000, running_max=8, step_tokens_max=64, block_tokens=1)


def _table(spread: int) -> StepTable:
    plain = linear_table((1.0, 0.0, 0.001, 0.01, 0.0))
    (line,) = plain.lines
    return StepTable(lines=(msgspec.structs.replace(line, spread=spread),))


@pytest.mark.parametrize("requests", [1, 2, 3, 4, 5])
def test_gaps_are_the_steps_of_the_table(requests: int) -> None:
    table = _table(4)
    sequences = [Sequence(i, 10, 50) for i in range(requests)]
    run_engine(_CONFIG, table, [(0.0, each) for each in sequences])
    steps = [table.step_s(requests, requests * (10 + n)) for n in range(49)]
    assert sequences[0].itl_mean_s == pytest.approx(sum(steps) / len(steps))
    assert sequences[0].itl_p99_s == pytest.approx(max(steps))


def test_a_prompt_beside_few_requests_waits_for_their_contexts_too() -> None:
    table = _table(4)
    first, second = Sequence(1, 10, 50), Sequence(2, 20, 1)
    run_engine(_CONFIG, table, [(0.0, first), (1.5, second)])
    first_step_s = table.step_s(0, 0, 10, 55.0) + table.step_s(1, 10)
    assert second.finished_s == pytest.approx(first_step_s + table.step_s(1, 11, 20, 210.0))


def test_the_compiled_path_leaves_such_tables_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "MISSING", None)
    control = ControlConfig(governor=GovernorConfig(mode="off"))
    for spread, refused in ((1, False), (2, True)):
        spec = ReplicaSpec(name="r", engine=_CONFIG, table=_table(spread))
        why = support.supports([spec], control, SimConfig())
        assert (why is not None) is refused
