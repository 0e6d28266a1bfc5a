"""run_fast: a simulation by compiled code, equal to that of `Simulation` to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np

from mileage.control.config import ControlConfig
from mileage.control.pool import Pool
from mileage.control.replicas import Replicas, Route
from mileage.core.errors import ConfigError
from mileage.sim.arrivals import PREFIX_MASK, estimated_tokens
from mileage.sim.fast import kernel
from mileage.sim.fast.desk import Desk
from mileage.sim.fast.entry import entry
from mileage.sim.fast.layout import NONE
from mileage.sim.fast.state import State
from mileage.sim.fast.support import check_columns, unsupported
from mileage.sim.fast.totals import outcomes_of, rejections_of, totals_of
from mileage.sim.node import ReplicaSpec
from mileage.sim.series import Series
from mileage.sim.simulation import SimConfig, SimResult, split_random
from mileage.workload.columns import TraceColumns

__all__ = ["run_fast"]


def run_fast(
    columns: TraceColumns,
    replicas: Sequence[ReplicaSpec],
    control: ControlConfig,
    config: SimConfig | None = None,
) -> SimResult:
    """What `Simulation(replicas, control=control, config=config).run(requests)` gives for the
    requests in `columns`.

    Raises TraceError for a request that no trace may have, and ConfigError, which says what it is,
    for what only the Python path can do (`unsupported` tells before).
    """
    config = config or SimConfig()
    why = unsupported(columns, replicas, control, config)
    if why is not None:
        raise ConfigError("path", "fast", f"python: {why}")
    check_columns(columns)
    return _Run(columns, replicas, control, config).result()


class _Run:
    """One run. The objects of the controller are asked where something is learned or decided."""

    def __init__(
        self,
        columns: TraceColumns,
        specs: Sequence[ReplicaSpec],
        control: ControlConfig,
        config: SimConfig,
    ) -> None:
        self._specs = specs
        self._state = state = State(columns, specs)
        random = Random(config.seed)  # noqa: S311 (no secret)
        errors, routing = split_random(random), split_random(random)
        if config.prompt_error_ratio:
            ratio, tokens = config.prompt_error_ratio, columns.prompt_tokens.tolist()
            state.seqs["prompt"] = [estimated_tokens(each, ratio, errors) for each in tokens]
        control = msgspec.structs.replace(
            control, replica_gpus={spec.name: spec.gpus for spec in specs}
        )
        self._fleet = Replicas([spec.name for spec in specs], control, {})
        self._desk = Desk(state, specs, self._fleet, control)
        self._start_s = float(columns.arrived_s[0]) if len(columns) else 0.0
        self._set_world(control, config)
        self._desk.begin(self._start_s)
        if len(specs) > 1:
            draw = routing.random
            state.draws = np.array([draw() for _ in range(2 * len(columns))])
            if control.routing.affinity:
                self._set_preferred(columns)
        self._series = Series(start_s=self._start_s, width_s=config.scrape_interval_s)

    def _set_world(self, control: ControlConfig, config: SimConfig) -> None:
        world, governor = self._state.world, control.governor
        world.now_s = world.scrape_s = world.last_s = self._start_s
        world.scrape_interval_s = config.scrape_interval_s
        world.in_flight_max = config.in_flight_max
        world.slack_s = control.routing.affinity_slack_s
        world.wake_s = world.asked_s = math.inf
        world.tell_first = world.held_first = NONE
        world.acts = governor.mode == "act"
        world.period_s, world.static = governor.period_s, governor.static.limit or 0
        world.limit_min, world.limit_max = governor.limit_min, governor.limit_max
        target_s = control.slo.of(self._specs[0].models[0]).ttft_s
        world.in_time = target_s is not None
        world.early = world.acts and world.in_time and governor.reject_late
        pool = Pool()
        world.prefill_cost, world._bias = pool.prefill_cost, pool.forecast._bias
        world.decides = governor.policy == "static" and not world.early
        world.queue_wait_s, world.queue_max = governor.queue_wait_max_s, governor.queue_max
        if world.early and target_s is not None:
            world.queue_wait_s = target_s
        world.routes = len(self._specs) > 1 or world.early
        route = Route()
        world.output_tokens, world._gain = route.output_tokens, route._gain

    def _set_preferred(self, columns: TraceColumns) -> None:
        """The replica that each prompt's first block belongs to."""
        closed = self._fleet.routes[self._specs[0].models[0]].closed
        index = {spec.name: at for at, spec in enumerate(self._specs)}
        owners: dict[int, int] = {}
        for at in np.flatnonzero(np.diff(columns.offsets)):
            key = int(columns.blocks[columns.offsets[at]]) & PREFIX_MASK
            owner = owners.get(key)
            if owner is None:
                owner = owners[key] = index[closed.preferred(key).name]
            self._state.preferred[at] = owner

    def result(self) -> SimResult:
        """Run it, and collect what came of it."""
        state, desk, world = self._state, self._desk, self._state.world
        run: Callable[..., Any] = entry()
        arguments = state.arguments
        while (code := run(*arguments)) != kernel.DONE:
            if code == kernel.DECIDE:
                desk.decide(float(world.now_s))
            elif code == kernel.LEARN:
                desk.learn(int(world.at), float(world.now_s))
            elif code == kernel.LOOK:
                desk.look(int(world.at), float(world.now_s))
            elif code == kernel.EMPTY:
                self._empty()
            elif code == kernel.GROW:
                state.grow()
                arguments = state.arguments
            else:
                expected = f"python: {world.in_flight:,} requests are in flight (in_flight_max)"
                raise ConfigError("path", "fast", expected)
        self._empty()
        return SimResult(
            outcomes=outcomes_of(state.seqs),
            rejections=rejections_of(world),
            replicas=totals_of(state.each_engine, self._specs),
            series=self._series,
            start_s=self._start_s,
            duration_s=float(world.last_s) - self._start_s,
            gpus=sum(spec.gpus for spec in self._specs),
        )

    def _empty(self) -> None:
        """Move the samples of the fleet to the series."""
        state = self._state
        for time_s, *values in state.rows[: state.world.rows].tolist():
            self._series.add(time_s, tuple(values))
        state.world.rows = 0
