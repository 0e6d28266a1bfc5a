"""Whether a step table has all steps that an engine may do."""

from __future__ import annotations

import math

from mileage.core.errors import ConfigError
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig

__all__ = ["check_engine"]

_ROUNDING_S = 1e-12


def check_engine(config: EngineConfig, table: StepTable) -> None:
    """Raises ConfigError where the table does not have all steps that the engine may do."""
    if not 1 <= len(table.lines) <= 2:
        raise ConfigError("step table", len(table.lines), "one or two lines")
    if table.requests_max < config.rows_max:
        expected = f"at most what its step table has ({table.requests_max})"
        if config.speculation is not None:
            expected += f", which is to have a row for each of {config.rows_max} tokens"
        raise ConfigError("engine.running_max", config.running_max, expected)
    if table.tokens_max < config.step_tokens_max:
        expected = f"at most what its step table has ({table.tokens_max})"
        raise ConfigError("engine.step_tokens_max", config.step_tokens_max, expected)
    for line in table.lines:
        if not all(0.0 <= factor < math.inf for factor in (line.kv_s, line.pair_s)):
            raise ConfigError("step table", line.kv_s, "coefficients of 0 or more")
        # A token that is decoded may take less than one of a prompt, but no step less than nothing.
        own_s = min(0.0, line.request_s)
        if not line.request_s < math.inf or any(
            time_s + own_s * (tokens - 1) < -_ROUNDING_S
            for tokens, time_s in enumerate(line.mixed_s[1:], 1)
        ):
            raise ConfigError("step table", line.request_s, "steps with requests of 0 s or more")
    for times in (
        [line.decode_s[1 : config.rows_max + 1] for line in table.lines],
        [line.mixed_s[1 : config.step_tokens_max + 1] for line in table.lines],
    ):
        if any(min(line) < 0.0 for line in times):
            raise ConfigError("step table", "a negative time", "times of 0 or more")
        if not all(0.0 < max(each) < math.inf for each in zip(*times, strict=True)):
            raise ConfigError("step table", "a step that takes no time", "every step takes some")
