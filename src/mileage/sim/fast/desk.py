"""Desk: where the compiled loop asks the controller's own objects: limits, and how fast it goes.

What they go by is in the records; it is put into the objects, and what they make of it is put back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mileage.control.config import ControlConfig
from mileage.control.replicas import Replica, Replicas
from mileage.core.replica import ReplicaView
from mileage.policy.limits.limit import RequestSample
from mileage.sim.fast.layout import LOAD_FIELDS, NONE, THROTTLE_FIELDS, Record, Records
from mileage.sim.fast.state import State
from mileage.sim.node import ReplicaSpec

__all__ = ["Desk"]

_LOAD = tuple(name for names in LOAD_FIELDS for name in names.split())
_THROTTLE = tuple(name for names in THROTTLE_FIELDS for name in names.split())


class Desk:
    """The replicas as the controller sees them: only asked now and then."""

    def __init__(
        self, state: State, specs: Sequence[ReplicaSpec], fleet: Replicas, control: ControlConfig
    ) -> None:
        self._state, self._specs, self._fleet = state, specs, fleet
        self._replicas: list[Replica] = list(fleet)
        self._governor, self._slo = control.governor, control.slo.of(specs[0].models[0])

    def begin(self, now_s: float) -> None:
        """All replicas come up, one after the other; the limit of each is decided at once."""
        world = self._state.world
        world.due_s = math.inf
        for at, (replica, spec) in enumerate(zip(self._replicas, self._specs, strict=True)):
            self._fleet.up(replica, spec.models)
            _get(self._state.loads[at], replica, _LOAD)
            if self._governor.mode == "act":
                self.decide(now_s)
        self._rates()
        for at, replica in enumerate(self._replicas):
            self._limit(at, replica)

    # --- limits -------------------------------------------------------------------------------

    def decide(self, now_s: float) -> None:
        """Decide the limits of all replicas that are due: as `Governor.tick` does."""
        state, governor = self._state, self._governor
        held, count = int(state.world.held), len(self._replicas)
        state.world.due_s = now_s + governor.period_s
        for at, replica in enumerate(self._replicas):
            throttle, record = replica.throttle, state.throttles[at]
            if not replica.models or now_s < throttle.due_s:
                continue
            _set(throttle, record, _THROTTLE)
            throttle._samples = self._samples(at, int(record["samples"]))
            if throttle.idle:
                continue
            if state.views[at]["known"]:
                throttle.observed(self._view(at, state.views))
            throttle.decide(
                now_s,
                waiting=math.ceil(held / count),
                slo=self._slo,
                bounds=(governor.limit_min, governor.limit_max),
                share_ratio=1.0,
                period_s=governor.period_s,
            )
            _get(record, throttle, _THROTTLE)
            record["samples"] = 0
            self._limit(at, replica)

    def _limit(self, at: int, replica: Replica) -> None:
        throttle, record = replica.throttle, self._state.throttles[at]
        bound = throttle.prefill_tokens_max
        record["limit"], record["own_limit"] = throttle.limit, throttle.own_limit
        record["bound"] = NONE if bound is None else bound

    def _samples(self, at: int, count: int) -> list[RequestSample]:
        return [
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
        ]  # fmt: skip

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
