"""A setup and a load after the changes of a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.doctor.evidence import Evidence
from mileage.doctor.gain.load import Load
from mileage.doctor.gain.setup import Setup
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.gain.weight_format import kv_format
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change

__all__ = ["Pair", "changed", "held_back", "unsimulated"]

POOLS: Final = ("client.max_connections", "proxy.max_connections", "proxy.max_parallel_requests")
"""Settings that hold requests back before they reach the engine."""

SEEN: Final = {
    "client": "client_requests_in_flight_max",
    "proxy": "proxy_requests_in_flight_max",
}
"""What was seen of those that a pool lets through."""

Value = float | bool | str | None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment and what it is asked for."""

    setup: Setup
    load: Load


def changed(pair: Pair, changes: Sequence[Change]) -> Pair | Unsimulated:
    """As it would be with all of the changes, each of which is known; else what is in the way."""
    setup, load = pair.setup, pair.load
    for change in changes:
        if change.setting in POOLS:
            cap = change.value
            if load.in_flight is None or not isinstance(cap, (int, float)):
                return Unsimulated("how many requests are wanted in flight is not known")
            load = msgspec.structs.replace(load, in_flight=load.in_flight.clipped(1.0, float(cap)))
            continue
        try:
            made = _CHANGES[change.setting](setup, change.value)
        except ConfigError as error:
            return Unsimulated(f"the cost model cannot do it: {error}")
        if made is None:
            return Unsimulated(f"this change of {change.setting} is not simulated")
        setup = made
    return Pair(setup=setup, load=load)


def unsimulated(changes: Sequence[Change]) -> Unsimulated | None:
    """Whether one of the changes is none that the simulator knows, whatever else is known."""
    if not changes:
        return Unsimulated("the remedy is no setting that is simulated")
    for change in changes:
        if change.setting not in _CHANGES and change.setting not in POOLS:
            return Unsimulated(f"a change of {change.setting} is not simulated")
    return None


def held_back(pair: Pair, evidence: Evidence, changes: Sequence[Change]) -> Pair | Unsimulated:
    """As it is now: where a pool lets fewer requests through than are wanted, with those alone."""
    pools = [change.setting for change in changes if change.setting in POOLS]
    if not pools or pair.load.in_flight is None:
        return pair
    seen = (*(SEEN[pool.partition(".")[0]] for pool in pools), "requests_running_max", *pools)
    for key in seen:
        through = evidence.number(key).most
        if through.bounded and through.low >= 1:
            wanted = pair.load.in_flight
            now = Interval(min(wanted.low, through.low), min(wanted.high, through.high))
            load = msgspec.structs.replace(pair.load, in_flight=now)
            return msgspec.structs.replace(pair, load=load)
    return Unsimulated("how many requests are let through is not known")


def _set(field: str) -> Callable[[Setup, Value], Setup | None]:
    def make(setup: Setup, value: Value) -> Setup | None:
        if not isinstance(value, (bool, int, float)):
            return None
        plain = value if isinstance(value, bool) else int(value)
        return msgspec.structs.replace(setup, **{field: plain})

    return make


def _deployed(setup: Setup, **fields: object) -> Setup:
    deployment = msgspec.structs.replace(setup.deployment, **fields)
    return msgspec.structs.replace(setup, deployment=deployment)


def _memory(setup: Setup, value: Value) -> Setup | None:
    if not isinstance(value, (int, float)):
        return None
    return _deployed(setup, gpu_memory_utilization_ratio=float(value))


def _width(setup: Setup, value: Value) -> Setup | None:
    if not isinstance(value, (int, float)):
        return None
    return _deployed(setup, tensor_parallel=int(value))


def _ranks(setup: Setup, value: Value) -> Setup | None:
    """Data-parallel ranks of a dense model are replicas: they share nothing."""
    if not isinstance(value, (int, float)) or setup.deployment.model.experts:
        return None
    # The cards that a narrower replica leaves free are those of the further ranks.
    return msgspec.structs.replace(setup, replicas=setup.replicas * int(value))


def _weights(setup: Setup, value: Value) -> Setup | None:
    """Other weights; a slower kernel for the same ones is nothing that the cost model knows."""
    return _deployed(setup, weights="fp8") if value == "fp8" else None


def _kv(setup: Setup, value: Value) -> Setup | None:
    kind = kv_format(value) if isinstance(value, str) else None
    return None if kind is None else _deployed(setup, kv=kind)


def _eager(setup: Setup, value: Value) -> Setup | None:
    return msgspec.structs.replace(setup, graphs=not value)


def _uncapped(setup: Setup, value: Value) -> Setup | None:
    return None if value is not None else msgspec.structs.replace(setup, kv_tokens_max=None)


def _admission(setup: Setup, value: Value) -> Setup | None:
    return msgspec.structs.replace(setup, whole_prompt_fits=value == "full_prompt")


def _undrafted(setup: Setup, value: Value) -> Setup | None:
    if value is not None or setup.speculation is None:
        return None
    return msgspec.structs.replace(setup, speculation=None)


_CHANGES: Final[Mapping[str, Callable[[Setup, Value], Setup | None]]] = {
    "max_num_seqs": _set("requests_max"),
    "max_num_batched_tokens": _set("step_tokens_max"),
    "enable_chunked_prefill": _set("chunked_prefill"),
    "enable_prefix_caching": _set("prefix_cache"),
    "gpu_memory_utilization": _memory,
    "tensor_parallel_size": _width,
    "data_parallel_size": _ranks,
    "quantization": _weights,
    "kv_cache_dtype": _kv,
    "enforce_eager": _eager,
    "max_tokens_in_paged_kv_cache": _uncapped,
    "scheduler.admission": _admission,
    "speculative.method": _undrafted,
}
