"""What the workers get of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from mileage.cli.cache_salt import cache_salt
from mileage.cli.config import Config, journal_directory
from mileage.core.request import Endpoint
from mileage.engines.remote import RemoteEngine
from mileage.gateway.config import GatewayConfig, Upstream

__all__ = ["gateway_settings"]


def gateway_settings(
    config: Config,
    engines: Sequence[RemoteEngine],
    upstreams: tuple[Upstream, ...],
    adapter_endpoints: tuple[Endpoint, ...] | None,
    state_directory: Path,
) -> GatewayConfig:
    """The whole of it, for these engines as they are called."""
    control = msgspec.structs.replace(
        config.control(),
        replicas=tuple(engine.name for engine in engines),
        lacks={engine.name: engine.unsupported for engine in engines if engine.unsupported},
    )
    return GatewayConfig(
        server=config.server,
        upstreams=upstreams,
        aliases=config.aliases,
        private_models=config.idle.private_models(),
        adapters=config.adapters,
        adapter_endpoints=adapter_endpoints,
        key_hashes=config.key_hashes,
        key_names=config.key_names,
        control=control,
        journal=msgspec.structs.replace(
            config.journal, directory=str(journal_directory(config.journal))
        ),
        on_ledger_failure=config.ledger.on_failure,
        cache_salt=cache_salt(config, state_directory),
        tokenizer=config.tokenizer,
    )
