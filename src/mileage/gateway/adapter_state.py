"""How LoRA adapters stand: documents of the admin API and of `mileage engine lora`."""

from __future__ import annotations

import msgspec

__all__ = ["AdapterState", "AdapterStates", "PlacesState"]


class AdapterState(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter of the catalogue. `heat`: its uses, each counting half after `lora.half_life_s`;
    `error`: why its last load failed, None where none has since it was loaded."""

    name: str
    base: str
    path: str
    tenant: str | None
    pinned: bool
    resident: list[str]
    """Replicas that hold it."""
    heat: float
    waiting: int
    """Requests that wait for it."""
    error: str | None = None


class PlacesState(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica holds; `load_s`: what a load took it lately, None where none was made."""

    replica: str
    up: bool
    slots: int
    resident: list[str]
    busy: bool
    load_s: float | None = None


class AdapterStates(msgspec.Struct, frozen=True, kw_only=True):
    """All adapters, and all replicas that load any. `host_cache_bytes` of adapter files are kept in
    this machine's memory."""

    adapters: list[AdapterState]
    replicas: list[PlacesState]
    host_cache_bytes: int = 0
