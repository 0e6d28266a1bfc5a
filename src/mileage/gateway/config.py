"""Configuration of the data plane: what a worker process is told, complete and immutable."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from mileage.control.config import ControlConfig
from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.gateway.cache_salt import CacheSaltSettings
from mileage.gateway.loopback import is_loopback
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.policy.residency.adapters import AdapterConfig
from mileage.policy.tenants import TenantLimits

__all__ = ["GatewayConfig", "JournalConfig", "ServerConfig", "TenantConfig", "Upstream"]

_KEY_ENTRY = re.compile(r"([A-Za-z0-9._-]{1,64}=)?sha256:[0-9a-f]{64}")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[server]`: the socket that clients talk to, and its limits.

    Every limit is enforced with an answer that names it: 431 for headers, 413 for the body, 408
    for a slow request, 503 past `connections_max`. With several workers each has an equal share
    of `connections_max` and `buffer_bytes_max`.
    """

    host: str = "127.0.0.1"
    """Address to listen on. Other than loopback it needs a tenant with a key."""
    port: int = 8080
    """0: any free port."""
    workers: int = 1
    """Worker processes on the port."""
    allow_no_keys: bool = False
    """Serve a non-loopback address although no tenant has a key."""
    tls_cert: str | None = None
    """Certificate chain, PEM file; with `tls_key` the port speaks TLS."""
    tls_key: str | None = None
    """Private key, PEM file."""
    connections_max: int = 10_000
    """Open client connections."""
    headers_max: int = 100
    """Headers of a request."""
    header_bytes_max: int = 65_536
    """Request line and headers together."""
    body_bytes_max: int = 32 * 1024 * 1024
    """Body of a request."""
    buffer_bytes_max: int = 1024 * 1024 * 1024
    """Of request bodies held at once, over all connections."""
    pipeline_max: int = 32
    """Requests that one connection may send ahead."""
    header_timeout_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_timeout_s: float = 60.0
    """From the end of the headers to the end of the body."""
    write_timeout_s: float = 60.0
    """A client that reads nothing for this long is cut off."""
    idle_timeout_s: float = 75.0
    """A connection without a request is closed after this."""
    drain_timeout_s: float = 60.0
    """At the end requests in flight get this long to finish."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser; `*`: any."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names for the Host header, without a port, where this machine is served without keys:
    addresses and localhost are always taken, other names could be a web page's."""
    cache_salt: Literal["none", "tenant"] = "none"
    """tenant: engines that can (vLLM) get a salt of each tenant's with its requests, so that no
    tenant shares what is cached with another, nor can measure what others have asked; none: prompts
    that begin alike share it, whoever sends them."""
    cache_salt_key_file: str | None = None
    """File with the key that salts are made with, the same for all gateways of an engine; default:
    `cache-salt-key` in the state directory, made at the first start. Another key makes all that is
    cached useless."""
    watch_config: bool = True
    """Look at the configuration file and the certificate once a second, and reload what was
    written."""

    @property
    def loopback(self) -> bool:
        """Only programs on this machine can reach it."""
        return is_loopback(self.host)

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


class TenantConfig(TenantLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[tenants.NAME]`: who may call, and how much. Keys are stored as SHA-256 only."""

    key_hashes: tuple[str, ...] = ()
    """Hashes that `mileage keys create` prints; several keys may be valid at once. Costs can be
    told apart by the name before a hash: `ci=sha256:...`. Several keys may have one name."""
    cache_salt: bool = True
    """With `server.cache_salt` = "tenant": False lets it share what is cached with the other
    tenants that have False here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for value in self.key_hashes:
            if not _KEY_ENTRY.fullmatch(value):
                raise ConfigError(
                    "tenants.*.key_hashes",
                    f"{len(value)} characters",  # not shown: it may be a key in the clear
                    "'sha256:' and 64 hex digits (mileage keys create), after NAME= perhaps",
                )

    @property
    def keys(self) -> dict[str, str | None]:
        """Hash of each key -> its name, None where it has none."""
        entries = (entry.rpartition("=") for entry in self.key_hashes)
        return {digest: name or None for name, _, digest in entries}


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as the data plane calls it; built by the composition root from `[[engines]]`."""

    name: str
    url: str
    authorization: str | None = None
    stream_usage: bool = True
    """The engine understands stream_options.include_usage."""
    request_tag: str | None = None
    """The engine is told each request by a name that has its id and this: see request_name. None:
    by the client's own name for it, and by ours where it has none."""
    lora: dict[str, str] = {}
    """By model: the JSON of the field `lora` that its requests are to have. Where it is not empty
    no client chooses it: those for other models lose it."""
    cache_salt: bool = False
    """The engine understands the field cache_salt."""
    unsupported: tuple[Endpoint, ...] = ()
    """Endpoints that the engine is known not to have: answered 501 without asking it."""
    unsure: tuple[Endpoint, ...] = ()
    """Endpoints it may not have: its 404 is told to the client as 501."""
    connections_max: int = 4096
    connect_timeout_s: float = 5.0
    response_timeout_s: float = 600.0
    """From the request sent to the first byte of the answer, and between its later bytes."""

    def share(self, workers: int) -> Upstream:
        """What one of so many workers is told: its part of the connections."""
        return msgspec.structs.replace(
            self, connections_max=max(1, self.connections_max // workers)
        )


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[journal]`: what the controller saw and did, for `mileage replay`."""

    enabled: bool = True
    """Keep a journal. It holds no prompts and no keys."""
    directory: str | None = None
    """Where; default: `journal` in the state directory."""
    segment_bytes_max: int = 16 * 1024 * 1024
    """Size of one file; each can be replayed by itself."""
    bytes_max: int = 256 * 1024 * 1024
    """Size of all files of one worker; the oldest are removed."""

    def __post_init__(self) -> None:
        require_range("journal.segment_bytes_max", self.segment_bytes_max, 65_536, 1 << 32)
        require_range("journal.bytes_max", self.bytes_max, 2 * self.segment_bytes_max, 1 << 40)


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs. `key_hashes`: lower-case SHA-256 hex digest -> tenant; `key_names`:
    the same of keys that have one -> the key's name."""

    server: ServerConfig = ServerConfig()
    upstreams: tuple[Upstream, ...] = ()
    aliases: dict[str, str] = {}
    adapters: tuple[AdapterConfig, ...] = ()
    """LoRA adapters that are loaded when they are asked for."""
    adapter_endpoints: tuple[Endpoint, ...] | None = None
    """Those at which engines take them; None: at all."""
    private_models: dict[str, tuple[str, ...]] = {}
    """Models that only some tenants may use -> those tenants; for others there are none such."""
    key_hashes: dict[str, str] = {}
    key_names: dict[str, str] = {}
    control: ControlConfig = ControlConfig()
    journal: JournalConfig = JournalConfig()
    on_ledger_failure: Literal["open", "closed"] = "open"
    cache_salt: CacheSaltSettings | None = None
    """What the salts of tenants are made with; None: there are none."""
    tokenizer: TokenizerConfig = TokenizerConfig()

    def worker_share(self) -> GatewayConfig:
        """What one worker is told: limits of the whole gateway are divided by the workers.

        Rounded down, so that the workers together keep the limit, but to no less than what one
        request needs.
        """
        workers, server = self.server.workers, self.server
        return msgspec.structs.replace(
            self,
            server=msgspec.structs.replace(
                server,
                connections_max=max(1, server.connections_max // workers),
                buffer_bytes_max=max(server.body_bytes_max, server.buffer_bytes_max // workers),
            ),
            upstreams=tuple(upstream.share(workers) for upstream in self.upstreams),
        )

    def with_upstream(self, upstream: Upstream) -> GatewayConfig:
        """The same, but for how one replica is called; unchanged where it has none of that name."""
        upstreams = tuple(upstream if u.name == upstream.name else u for u in self.upstreams)
        return msgspec.structs.replace(self, upstreams=upstreams)
