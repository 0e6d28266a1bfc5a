"""Step tables that an engine may have: a decoded token may take less than one of a prompt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mileage.core.errors import ConfigError
from mileage.costmodel.fitted import FittedSteps
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_check import check_engine
from mileage.sim.engine_config import EngineConfig

CONFIG = EngineConfig(kv_blocks=100, running_max=8, step_tokens_max=64)
TABLE = FittedSteps(planes=((0.001, 1e-6, 1e-9, 5e-5),), samples=1, error_ratio=0.0).step_table(
    8, 64
)


def test_a_decoded_token_may_take_less_than_one_of_a_prompt() -> None:
    assert TABLE.lines[0].request_s < 0.0
    check_engine(CONFIG, TABLE)


@pytest.mark.parametrize("request_s", [-1e-3, float("inf"), float("-inf"), float("nan")])
def test_a_step_may_not_take_less_than_nothing(request_s: float) -> None:
    line = replace(TABLE.lines[0], request_s=request_s)
    with pytest.raises(ConfigError, match="step table"):
        check_engine(CONFIG, StepTable(lines=(line,)))
