"""TLS of the data plane: the context that its port speaks with."""

from __future__ import annotations

import ssl

from mileage.core.errors import ConfigError
from mileage.gateway.config import ServerConfig

__all__ = ["tls_context"]


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context of `tls_cert` and `tls_key`; None where the port speaks plain HTTP.

    Raises ConfigError that names the file at fault.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    for key, path in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key)):
        try:
            open(path, "rb").close()
        except OSError as error:
            expected = f"a readable file ({error.strerror})"
            raise ConfigError(f"server.{key}", path, expected) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        expected = "a PEM certificate that fits server.tls_key, a PEM key without a password"
        raise ConfigError("server.tls_cert", config.tls_cert, f"{expected} ({reason})") from None
    return context


def _no_password() -> str:
    """Without it OpenSSL asks for a password on the terminal, and waits."""
    raise ValueError("the key needs a password")
