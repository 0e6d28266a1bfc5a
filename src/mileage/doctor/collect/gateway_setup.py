"""What a Mileage gateway says that it is and serves -> facts of the set-up."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document

__all__ = ["GatewaySetup", "gateway_setup"]

_ENGINES: Final = {"llamacpp": "llama.cpp", "trtllm": "tensorrt-llm"}
"""Kinds of a replica that the vocabulary has another word for."""
_EMBEDDED: Final = "embedded"
"""Name of the replica that the gateway runs itself."""
T = TypeVar("T")


class _Replica(msgspec.Struct, frozen=True):
    name: str
    kind: str | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    url: str | None = None


class _Status(msgspec.Struct, frozen=True):
    replicas: tuple[_Replica, ...] = ()


class _Embedded(msgspec.Struct, frozen=True):
    slots: int | None = None
    context_tokens: int | None = None


class _Costs(msgspec.Struct, frozen=True):
    usd_per_gpu_hour: float | None = None


class _Config(msgspec.Struct, frozen=True):
    embedded: _Embedded = _Embedded()
    costs: _Costs = _Costs()


class GatewaySetup(msgspec.Struct, frozen=True):
    """Facts; the slots of the embedded engine, where that is what serves; engines elsewhere."""

    document: FactsDocument = {}
    slots: int | None = None
    engine_urls: tuple[str, ...] = ()


def gateway_setup(status: bytes | None, config: bytes | None) -> GatewaySetup:
    """From the bodies of /api/v1/status and /api/v1/config; what is no such document tells
    nothing. Engine, version and model are told where all replicas have the same."""
    replicas = (_decoded(status, _Status) or _Status()).replicas
    told = _decoded(config, _Config) or _Config()
    is_embedded = [each.name for each in replicas] == [_EMBEDDED]
    kinds = {each.kind for each in replicas}
    versions = {each.version for each in replicas}
    models = {each.models for each in replicas}
    engine: dict[str, Any] = {}
    if len(kinds) == 1 and (kind := kinds.pop()) is not None:
        engine["name"] = _ENGINES.get(kind, kind)
    if len(versions) == 1 and (version := versions.pop()) is not None:
        engine["version"] = version
    model: dict[str, Any] = {}
    if len(models) == 1 and len(names := models.pop()) == 1:
        model["name"] = names[0]
    settings: dict[str, Any] = {}
    if is_embedded:
        engine["variant"] = _EMBEDDED
        own = told.embedded
        settings = {"max_num_seqs": own.slots, "max_model_len": own.context_tokens}
    return GatewaySetup(
        document=facts_document(
            engine=engine,
            model=model,
            settings={name: value for name, value in settings.items() if value is not None},
            signals={"gpu_price_usd_per_h": told.costs.usd_per_gpu_hour},
        ),
        slots=told.embedded.slots if is_embedded else None,
        engine_urls=tuple(
            each.url for each in replicas if each.url is not None and each.name != _EMBEDDED
        ),
    )


def _decoded(body: bytes | None, kind: type[T]) -> T | None:
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
