"""TLS of the data plane: the context that its port speaks with, and its exchange."""

from __future__ import annotations

import ssl

from mileage.core.errors import ConfigError
from mileage.gateway.config import ServerConfig

__all__ = ["ServerTls", "certificate_context", "tls_context"]


class ServerTls:
    """The context of a listening port, whose certificate can be exchanged while it is in use.

    `context` is None where the port speaks plain HTTP: that stays so.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.context = self._current = tls_context(config)
        if self.context is not None:
            # Called in every handshake, also where the client names no server. The certificate is
            # exchanged whole: to load another into a context in use could leave half of each.
            self.context.sni_callback = self._choose

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this context's certificate for handshakes from now on."""
        if context is not None:
            self._current = context

    def _choose(
        self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext
    ) -> None:
        assert self._current is not None
        connection.context = self._current


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context of the data plane; see `certificate_context`."""
    return certificate_context("server", config.tls_cert, config.tls_key)


def certificate_context(
    section: str, certificate: str | None, key: str | None
) -> ssl.SSLContext | None:
    """The context of `tls_cert` and `tls_key`; None where the port speaks plain HTTP.

    Raises ConfigError that names the file at fault.
    """
    if certificate is None or key is None:
        return None
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        try:
            open(path, "rb").close()
        except OSError as error:
            expected = f"a readable file ({error.strerror})"
            raise ConfigError(f"{section}.{name}", path, expected) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        expected = f"a PEM certificate that fits {section}.tls_key, a PEM key without a password"
        raise ConfigError(f"{section}.tls_cert", certificate, f"{expected} ({reason})") from None
    return context


def _no_password() -> str:
    """Without it OpenSSL asks for a password on the terminal, and waits."""
    raise ValueError("the key needs a password")
