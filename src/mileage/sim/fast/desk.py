"""Desk: where the compiled loop asks the controller's own objects: limits, and how fast it goes.

What they go by is in the records; it is put into the objects, and what they make of it is put back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mileage.control.config import ControlConfig
from mileage.control.forecast import (
    SAMPLES_MIN,
    ServiceForecast,
    Speed,
    WaitForecast,
    tokens_within,
)
from mileage.control.own_limit import own_limit, within
from mileage.control.prefill_cost import PrefillCost, blended
from mileage.control.replica import Replica
from mileage.control.replicas import Replicas
from mileage.control.throttle import CALM_RATIO
from mileage.core.replica import ReplicaView
from mileage.policy.limits.choose import make_limit
from mileage.policy.limits.limit import LimitPolicy, LimitSignals, RequestSample
from mileage.sim.fast.layout import LOAD_FIELDS, NONE, THROTTLE, Record, Records
from mileage.sim.fast.state import State
from mileage.sim.node import ReplicaSpec

__all__ = ["Desk"]

_LOAD = tuple(name for names in LOAD_FIELDS for name in names.split())
_DECIDED_BY = THROTTLE.names or ()


class Desk:
    """The replicas as the controller sees them: only asked now and then."""

    def __init__(
        self, state: State, specs: Sequence[ReplicaSpec], fleet: Replicas, control: ControlConfig
    ) -> None:
        self._state, self._specs, self._fleet = state, specs, fleet
        self._replicas: list[Replica] = list(fleet)
        self._governor, self._slo = control.governor, control.slo.of(specs[0].models[0])
        self._policies: list[LimitPolicy] = []
        self._costs = [PrefillCost() for _ in specs]
        self._speeds = [Speed() for _ in specs]
        self._fits = 0
        self._decided = [(0.0, 0.0) for _ in specs]
        told = control.replica_running_max
        self._told = {at: told[spec.name] for at, spec in enumerate(specs) if spec.name in told}

    def begin(self, now_s: float) -> None:
        """All replicas come up, one after the other; the limit of each is decided at once."""
        state = self._state
        state.world.due_s = math.inf
        for at, (replica, spec) in enumerate(zip(self._replicas, self._specs, strict=True)):
            self._fleet.up(replica, spec.models)
            _get(state.loads[at], replica, _LOAD)
            limit, record = replica.throttle.limit, state.throttles[at]
            record["limit"], record["own_limit"], record["bound"] = limit, limit, NONE
            record["due_s"], record["running_max"] = -math.inf, self._told.get(at, NONE)
            record["calm_tokens"] = math.inf
            service = state.services[at]
            service["due_s"], service["speed"] = -math.inf, math.nan
            for name, value in _covariance():
                service[name] = value
            self._policies.append(make_limit(self._governor, limit=limit))
            if self._governor.mode == "act":
                self.decide(now_s)
        self._rates()

    # --- limits -------------------------------------------------------------------------------

    def decide(self, now_s: float) -> None:
        """Decide the limits of all replicas that are due: as `Governor.tick` does."""
        state, governor = self._state, self._governor
        state.world.due_s = now_s + governor.period_s
        if state.world.early:
            WaitForecast.relax(state.world)
        waiting = math.ceil(int(state.world.held) / len(self._replicas))
        for at, record in enumerate(state.throttles):
            if not self._replicas[at].models or now_s < record["due_s"]:
                continue
            its = dict(zip(_DECIDED_BY, record.item(), strict=True))
            if record["due_s"] > -math.inf and not (
                its["_peak"] or its["arrivals"] or its["samples"]
            ):
                continue
            record["due_s"] = now_s + governor.period_s
            most = self._told.get(at)
            if most is None and state.views[at]["known"]:
                most = self._specs[at].engine.running_max
            decision = self._policies[at].update(self._signals(at, its, most, waiting), now_s)
            if state.world.early:
                self._learn_cost(at, its, now_s)
            record["arrivals"], record["samples"], record["_peak"] = 0, 0, its["in_flight"]
            bound = decision.prefill_tokens_max
            record["bound"] = NONE if bound is None else bound
            limit = within(decision.limit, governor.limit_min, governor.limit_max, most or 0)
            record["limit"] = limit
            record["own_limit"] = own_limit(limit, most or 0, self._slo.ttft_s is not None, 1.0)

    def _learn_cost(self, at: int, its: dict[str, Any], now_s: float) -> None:
        """How fast work is done there, what a prompt token costs, and how many are sure to be in
        time."""
        service, world = self._state.services[at], self._state.world
        cost, (since_s, in_flight_s) = self._costs[at], self._decided[at]
        cost.learn(self._samples(at, its["samples"]))
        self._speeds[at].learn(its["done"], its["_in_flight_s"] - in_flight_s, now_s - since_s)
        speed = self._speeds[at].value
        service["speed"] = math.nan if speed is None else speed
        self._decided[at] = (now_s, its["_in_flight_s"])
        record = self._state.throttles[at]
        record["done"] = 0.0
        if service["samples"] >= SAMPLES_MIN and self._slo.ttft_s is not None:
            t0, t1, t2, t3 = (float(service[name]) for name in ("t0", "t1", "t2", "t3"))
            time_s = CALM_RATIO * self._slo.ttft_s / (1.0 + float(service["residual_ratio"]))
            record["calm_tokens"] = tokens_within((t0, t1, t2, t3), time_s, its["in_flight"])
        fitted = cost.value
        if fitted is not None:
            world.prefill_cost = blended(world.prefill_cost, fitted, self._fits)
            self._fits += 1

    def _signals(
        self, at: int, its: dict[str, Any], most: int | None, waiting: int
    ) -> LimitSignals:
        views, in_flight = self._state.views, its["in_flight"]
        return LimitSignals(
            view=self._view(at, views) if views[at]["known"] else None,
            running_max=most,
            in_flight=in_flight,
            in_flight_peak=its["_peak"],
            waiting=waiting,
            arrivals=float(its["arrivals"]),
            samples=self._samples(at, its["samples"]),
            ttft_target_s=self._slo.ttft_s,
            itl_target_s=self._slo.itl_s,
            modality_counts=(in_flight, 0, 0),
            load_mean=its["_kv_tokens"] / in_flight if in_flight else 0.0,
        )

    def _samples(self, at: int, count: int) -> tuple[RequestSample, ...]:
        return tuple(
            RequestSample(
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                stream=True,
                ttft_s=ttft_s,
                service_ttft_s=service_ttft_s,
                itl_p99_s=itl_p99_s,
                step_s=took_s / steps,
                running_mean=in_flight_s / took_s,
                kv_tokens_mean=kv_s / took_s + output_tokens / 2,
                prefill_tokens_per_step=prefilled / steps,
                decoding_mean=decoding_s / took_s,
                prefill_tokens=prompt_tokens,
            )
            for (
                took_s, ttft_s, service_ttft_s, itl_p99_s, in_flight_s, kv_s, prefilled, decoding_s,
                prompt_tokens, output_tokens, steps,
            ) in self._state.samples[at, :count].tolist()
        )  # fmt: skip

    # --- how fast they are --------------------------------------------------------------------

    def learn(self, at: int, now_s: float) -> None:
        """The replica's window of finished requests is full."""
        replica, record = self._replicas[at], self._state.loads[at]
        _set(replica, self._state.learnt[at], _LOAD)
        replica._learn(now_s)
        record["_sampled_s"], record["_window_due_s"] = replica._sampled_s, replica._window_due_s
        record["to_learn"] = False
        self._rates()

    def look(self, at: int, now_s: float) -> None:
        """The replica takes a view in from which there is something to be learned."""
        state, replica = self._state, self._replicas[at]
        _set(replica, state.loads[at], _LOAD)
        replica._view = self._view(at, state.lasts) if state.lasts[at]["known"] else None
        replica.observed(self._view(at, state.views), now_s)
        _get(state.loads[at], replica, _LOAD)
        self._rates()

    def _rates(self) -> None:
        """What all have shown says something about each."""
        loads, rates = self._state.loads, [each._rate for each in self._replicas]
        loads["s_per_token"] = [rate.s_per_token for rate in rates]
        loads["free_s"] = [rate.free_s for rate in rates]
        self._state.world.work_tokens = self._replicas[-1]._rates.work_tokens

    def _view(self, at: int, views: Records) -> ReplicaView:
        seen, spec = views[at], self._specs[at]
        engine = spec.engine
        busy, caching = float(seen["busy"]), engine.prefix_cache
        return ReplicaView(
            replica=spec.name,
            observed_s=float(seen["observed_s"]),
            running=int(seen["running"]),
            waiting=int(seen["waiting"]),
            running_max=engine.running_max,
            kv_cache_usage_ratio=float(seen["kv_usage"]),
            kv_tokens_max=engine.kv_blocks * engine.block_tokens,
            prefix_cache_hit_tokens_total=float(seen["hit_tokens"]) if caching else None,
            prefix_cache_query_tokens_total=float(seen["query_tokens"]) if caching else None,
            preemptions_total=float(seen["preemptions"]),
            prompt_tokens_total=float(seen["prompt_tokens"]),
            output_tokens_total=float(seen["output_tokens"]),
            compute_busy_ratio=None if math.isnan(busy) else busy,
        )


def _covariance() -> Iterator[tuple[str, float]]:
    """The fields of a forecast that has seen nothing."""
    for i, row in enumerate(ServiceForecast()._covariance):
        for j, value in enumerate(row):
            yield f"p{i}{j}", value


def _set(target: object, record: Record, names: tuple[str, ...]) -> None:
    its = dict(zip(record.dtype.names, record.item(), strict=True))
    for name in names:
        setattr(target, name, its[name])


def _get(record: Record, source: object, names: tuple[str, ...]) -> None:
    for name in names:
        record[name] = getattr(source, name)
