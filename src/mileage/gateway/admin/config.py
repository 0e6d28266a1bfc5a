"""Configuration of the admin plane: section `[admin]`."""

from __future__ import annotations

import re

import msgspec

from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.gateway.loopback import is_loopback

__all__ = ["AdminConfig", "check_token"]

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")


class AdminConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[admin]`: the socket of the dashboard, /metrics and the control API.

    Apart from the data plane's socket on purpose: whoever may send prompts may not see other
    tenants' figures or stop the gateway.
    """

    enabled: bool = True
    """false: no admin plane: no dashboard, no /metrics."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8081
    """0: any free port, which the start tells."""
    allow_remote: bool = False
    """Bind an address that other machines reach; refused without it."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that clients may use in the Host header, without a port."""
    token: str | None = None
    """What opens this plane, 16 to 512 characters; better in `token_file` or the environment."""
    token_file: str | None = None
    """None: `admin-token` in the state directory, made at the first start for its owner only."""
    metrics_public: bool = False
    """Serve /metrics without the token also on an address that other machines reach."""
    tls_cert: str | None = None
    """Certificate file (PEM): serve HTTPS. Needs `tls_key`."""
    tls_key: str | None = None
    """Private key file (PEM) of `tls_cert`."""
    subscribers_max: int = 32
    """Open dashboards (live event streams); one more is refused with 503."""
    connections_max: int = 256
    """Connections at once; one more gets 503."""

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigError("admin.host", self.host, "an address or a host name")
        require_range("admin.port", self.port, 0, 65_535)
        require_range("admin.subscribers_max", self.subscribers_max, 1, 10_000)
        require_range("admin.connections_max", self.connections_max, 2, 100_000)
        if self.token is not None:
            check_token("admin.token", self.token)
            if self.token_file is not None:
                raise ConfigError(
                    "admin.token_file", self.token_file, "token or token_file, not both"
                )
        for name in self.allowed_hosts:
            if not _HOST_NAME.fullmatch(name):
                raise ConfigError("admin.allowed_hosts", name, "host names without scheme or port")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("admin.tls_key", self.tls_key, "tls_cert and tls_key together")
        if not self.is_loopback and not self.allow_remote:
            raise ConfigError(
                "admin.host",
                self.host,
                "a loopback address, or admin.allow_remote = true to serve other machines",
            )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{key}={'<hidden>' if key == 'token' and value else repr(value)}"
            for key, value in msgspec.structs.asdict(self).items()
        )
        return f"AdminConfig({shown})"

    @property
    def is_loopback(self) -> bool:
        """Only this machine reaches the address. A name other than localhost counts as remote."""
        return is_loopback(self.host)


def check_token(key: str, token: str) -> str:
    """Return the token if it is usable; raise ConfigError, which does not repeat it, if not."""
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            key, f"{len(token)} characters", "16..512 printable ASCII characters without spaces"
        )
    return token
