"""Configuration of the data plane: what a worker process is told, complete and immutable."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.policy.breaker import BreakerConfig
from mileage.policy.routing import RoutingConfig

__all__ = ["GatewayConfig", "ServerConfig", "TenantConfig", "Upstream"]


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[server]`: the socket that clients talk to, and its limits.

    Every limit is enforced with an answer that names it: 431 for headers, 413 for the body, 408
    for a slow request, 503 past `connections_max`.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    allow_no_keys: bool = False
    """Serve a non-loopback address although no tenant has a key."""
    tls_cert: str | None = None
    tls_key: str | None = None
    connections_max: int = 10_000
    headers_max: int = 100
    header_bytes_max: int = 65_536
    body_bytes_max: int = 32 * 1024 * 1024
    buffer_bytes_max: int = 1024 * 1024 * 1024
    """Of request bodies held at once, over all connections of a worker."""
    pipeline_max: int = 32
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    write_timeout_s: float = 60.0
    """A client that reads nothing for this long is cut off."""
    idle_timeout_s: float = 75.0
    drain_timeout_s: float = 60.0
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_range("server.port", self.port, 0, 65_535)
        require_range("server.workers", self.workers, 1, 64)
        for key in ("connections_max", "headers_max", "pipeline_max"):
            require_range(f"server.{key}", getattr(self, key), 1, 1_000_000)
        require_range("server.header_bytes_max", self.header_bytes_max, 1024, 1 << 20)
        require_range("server.body_bytes_max", self.body_bytes_max, 1024, 1 << 32)
        held_max = 1 << 40
        require_range(
            "server.buffer_bytes_max", self.buffer_bytes_max, self.body_bytes_max, held_max
        )
        for key in (
            "header_timeout_s",
            "body_timeout_s",
            "write_timeout_s",
            "idle_timeout_s",
            "drain_timeout_s",
        ):
            require_positive(f"server.{key}", getattr(self, key))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("server.tls_key", self.tls_key, "tls_cert and tls_key together")


class TenantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[tenants.NAME]`: who may call. Keys are stored as SHA-256 only."""

    key_hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for value in self.key_hashes:
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
                raise ConfigError(
                    "tenants.*.key_hashes",
                    value,
                    "'sha256:' and 64 hex digits (mileage keys create)",
                )


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as the data plane calls it; built by the composition root from `[[engines]]`."""

    name: str
    url: str
    authorization: str | None = None
    stream_usage: bool = True
    """The engine understands stream_options.include_usage."""
    unsupported: tuple[Endpoint, ...] = ()
    """Endpoints that the engine is known not to have: answered 501 without asking it."""
    unsure: tuple[Endpoint, ...] = ()
    """Endpoints it may not have: its 404 is told to the client as 501."""
    connections_max: int = 4096
    connect_timeout_s: float = 5.0
    response_timeout_s: float = 600.0
    """From the request sent to the first byte of the answer, and between its later bytes."""


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs. `key_hashes`: lower-case SHA-256 hex digest -> tenant."""

    server: ServerConfig = ServerConfig()
    upstreams: tuple[Upstream, ...] = ()
    aliases: dict[str, str] = {}
    key_hashes: dict[str, str] = {}
    routing: RoutingConfig = RoutingConfig()
    breaker: BreakerConfig = BreakerConfig()
    attempts_max: int = 3
    on_ledger_failure: Literal["open", "closed"] = "open"
