"""Desk: where the compiled loop asks the controller's own objects: limits, and how fast it goes.

What they go by is in the records; it is put into the objects, and what they make of it is put back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mileage.control.config import ControlConfig
from mileage.control.own_limit import own_limit, within
from mileage.control.replicas import Replica, Replicas
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
            self._policies.append(make_limit(self._governor, limit=limit))
            if self._governor.mode == "act":
                self.decide(now_s)
        self._rates()

    # --- limits -------------------------------------------------------------------------------

    def decide(self, now_s: float) -> None:
        """Decide the limits of all replicas that are due: as `Governor.tick` does."""
        state, governor = self._state, self._governor
        state.world.due_s = now_s + governor.period_s
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
            record["arrivals"], record["samples"], record["_peak"] = 0, 0, its["in_flight"]
            bound = decision.prefill_tokens_max
            record["bound"] = NONE if bound is None else bound
            limit = within(decision.limit, governor.limit_min, governor.limit_max, most or 0)
            record["limit"] = limit
            record["own_limit"] = own_limit(limit, most or 0, self._slo.ttft_s is not None, 1.0)

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
        for at, replica in enumerate(self._replicas):
            record = self._state.loads[at]
            record["s_per_token"], record["free_s"] = (
                replica._rate.s_per_token,
                replica._rate.free_s,
            )
            self._state.world.work_tokens = replica._rates.work_tokens

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


def _set(target: object, record: Record, names: tuple[str, ...]) -> None:
    for name in names:
        setattr(target, name, record[name].item())


def _get(record: Record, source: object, names: tuple[str, ...]) -> None:
    for name in names:
        record[name] = getattr(source, name)
