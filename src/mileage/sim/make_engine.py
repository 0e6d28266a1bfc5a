"""Which engine a configuration asks for."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from mileage.costmodel.step_table import StepTable
from mileage.sim.disaggregated_engine import DisaggregatedEngine
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.ordered_engine import OrderedEngine
from mileage.sim.rank_group import RankGroup
from mileage.sim.serving_engine import ServingEngine
from mileage.sim.speculative_engine import SpeculativeEngine
from mileage.sim.static_engine import StaticEngine

__all__ = ["AnyEngine", "make_engine", "make_single"]

AnyEngine: TypeAlias = Engine | DisaggregatedEngine | RankGroup


def make_engine(config: EngineConfig, table: StepTable, random: Random) -> AnyEngine:
    """A fresh engine, or group of engines. Raises ConfigError where the table does not have all of
    their steps."""
    if config.disaggregation is not None:
        return DisaggregatedEngine(config, table, random)
    if config.dp_ranks > 1:
        return RankGroup(config, table, random)
    return make_single(config, table, random)


def make_single(config: EngineConfig, table: StepTable, random: Random) -> Engine:
    """A fresh engine of a configuration that asks for no group of them; ConfigError as above."""
    if config.prefill is not None:
        return OrderedEngine(config, table, random)
    if config.static_batch is not None:
        return StaticEngine(config, table, random)
    if config.speculation is not None:
        return SpeculativeEngine(config, table, random)
    if config.eviction is not None or config.kv_tiers or config.adapters is not None:
        return ServingEngine(config, table, random)
    return Engine(config, table, random)
