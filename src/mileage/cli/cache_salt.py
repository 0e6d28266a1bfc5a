"""The key of cache salts: read from its file, or made once, beside the admin token."""

from __future__ import annotations

from pathlib import Path

from mileage.cli.config import Config
from mileage.gateway.admin.token import load_or_create_token
from mileage.gateway.cache_salt import CacheSaltSettings

__all__ = ["cache_salt"]


def cache_salt(config: Config, state_directory: Path) -> CacheSaltSettings | None:
    """What the salts of tenants are made with; None: there are none. Raises ConfigError for a key
    file that others can read, or that is none."""
    server = config.server
    if server.cache_salt == "none":
        return None
    path = state_directory / "cache-salt-key"
    if server.cache_salt_key_file is not None:
        path = Path(server.cache_salt_key_file).expanduser()
    unsalted = (name for name, tenant in config.tenants.items() if not tenant.cache_salt)
    key = load_or_create_token(path, "server.cache_salt_key_file")
    return CacheSaltSettings(key=key, unsalted=frozenset(unsalted))
