"""Addresses of PostgreSQL databases: what of them may be shown, and that they hold no secret."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from mileage.core.errors import ConfigError

__all__ = ["check_address", "display_address"]

_EXPECTED = (
    "postgresql://USER@HOST:PORT/DATABASE, without a password: that belongs in the file that "
    "PGPASSFILE names, or in PGPASSWORD"
)


def display_address(address: str) -> str:
    """Host, port and database, and nothing else of it: 'postgresql://db:5432/mileage'."""
    try:
        parts = urlsplit(address)
        # A socket's directory stands in the query.
        query = dict(parse_qsl(parts.query))
        host = parts.hostname or query.get("host", "")
        port = parts.port or query.get("port")
    except ValueError:
        return "postgresql://"
    shown = f"[{host}]" if ":" in host else host
    return f"postgresql://{shown}{f':{port}' if port else ''}{parts.path}"


def check_address(key: str, address: str) -> None:
    """Raises ConfigError, which does not show the address, where it is none or has a password."""
    try:
        parts = urlsplit(address)
        _ = parts.port
        secret = parts.password is not None or any(
            "password" in name.lower() for name, _ in parse_qsl(parts.query, strict_parsing=False)
        )
    except ValueError:
        raise ConfigError(key, "(not shown)", _EXPECTED) from None
    if parts.scheme not in ("postgresql", "postgres") or secret or parts.fragment:
        raise ConfigError(key, "(not shown)", _EXPECTED)
