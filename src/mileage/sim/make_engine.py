"""Which engine a configuration asks for."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.ordered_engine import OrderedEngine
from mileage.sim.serving_engine import ServingEngine
from mileage.sim.static_engine import StaticEngine

__all__ = ["AnyEngine", "make_engine"]

AnyEngine: TypeAlias = Engine


def make_engine(config: EngineConfig, table: StepTable, random: Random) -> AnyEngine:
    """A fresh engine. Raises ConfigError where the table does not have all of its steps."""
    if config.prefill is not None:
        return OrderedEngine(config, table, random)
    if config.static_batch is not None:
        return StaticEngine(config, table, random)
    if config.eviction is not None or config.kv_tiers or config.adapters is not None:
        return ServingEngine(config, table, random)
    return Engine(config, table, random)
