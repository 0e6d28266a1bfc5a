"""An embedded engine as all others are called: its address, its key, its limits."""

from __future__ import annotations

import msgspec

from mileage.engines.config import CPU, EngineConfig
from mileage.engines.embedded.engine import EmbeddedEngine
from mileage.engines.remote import RemoteEngine, resolve

__all__ = ["own_engine"]

_SCRAPE_S = 2.0


def own_engine(name: str, embedded: EmbeddedEngine) -> RemoteEngine:
    """The engine as a replica of this name; it has an address by now."""
    named = EngineConfig(kind="llamacpp", url=embedded.url, gpu=CPU)
    return msgspec.structs.replace(
        resolve(named, {}),
        name=name,
        authorization=embedded.authorization,
        connections_max=embedded.connections_max,
        # llama.cpp notices that the client of an answer which is no stream has left only after
        # a second in which it was asked nothing else.
        scrape_interval_s=_SCRAPE_S,
        # This version is known to have all of them.
        unsure=(),
    )
