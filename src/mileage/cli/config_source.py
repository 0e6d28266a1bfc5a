"""ConfigSource: where the configuration comes from, to be read at the start and again later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mileage.cli.config import Config
from mileage.cli.config_document import Document
from mileage.core.errors import ConfigError
from mileage.engines.remote import resolve, resolve_all
from mileage.gateway.config import ServerConfig
from mileage.gateway.tls import certificate_context, tls_context
from mileage.gateway.tokenizer_file import check_tokenizers
from mileage.scrape.kv_cache import check_cache_events
from mileage.scrape.target import PollTarget

__all__ = ["ConfigSource", "Look", "Seen", "certificate_digest", "check_exposure"]


class Look(NamedTuple):
    """What tells one state of a file from another, without reading it."""

    inode: int
    changed_ns: int
    size_bytes: int


Seen: TypeAlias = dict[Path, Look | None]
"""Every file as it looked; None for one that cannot be looked at."""


class ConfigSource:
    """File, environment and flags: the same at every reading, but for what was written since.

    `seen` is what the files looked like when they were last read: where `look()` differs from it,
    something was written.
    """

    def __init__(
        self, path: Path | None, flags: Mapping[str, Any], environ: Mapping[str, str] | None = None
    ) -> None:
        self._path, self._flags = path, flags
        self._environ = os.environ if environ is None else environ
        self._files: list[Path] = [path] if path is not None else []
        self.seen: Seen = {}
        self.trial: Mapping[str, Any] = {}
        """Values by dotted key that stand over all that is written, for a while."""

    def load(self) -> Config:
        """Read and check all of it.

        Raises ConfigError, which names file, line and key, for all that would keep a gateway from
        starting: also for certificates that cannot be used, and engines that cannot be called.
        """
        seen = self.seen = self.look()  # before the reading: what is written later is seen later
        document = Document(self._path, self._flags, self._environ, Config, trial=self.trial)
        config = document.decode(Config)
        self._files = [
            Path(name)
            for name in (self._path, config.server.tls_cert, config.server.tls_key)
            if name is not None
        ]
        self.seen = {file: seen[file] if file in seen else _look(file) for file in self._files}
        try:
            check_exposure(config)
            tls_context(config.server)
            certificate_context("admin", config.admin.tls_cert, config.admin.tls_key)
            self._check_engines(config, document)
            check_tokenizers(config.tokenizer)
        except ConfigError as error:
            raise document.placed(error) from None
        return config

    def look(self) -> Seen:
        """What the files look like now: those of the last configuration that could be read."""
        return {file: _look(file) for file in self._files}

    def _check_engines(self, config: Config, document: Document) -> None:
        for place, engine in enumerate(config.engines):
            try:
                found = resolve(engine, self._environ)
                with engine.named():
                    check_cache_events(msgspec.convert(found, PollTarget, from_attributes=True))
            except ConfigError as error:
                path = ("engines", place, error.key.rpartition(".")[2])
                raise document.placed(error, path) from None
        resolve_all(config.engines, self._environ)


def certificate_digest(server: ServerConfig) -> str | None:
    """Changes with what the certificate files hold; None where there are none."""
    if server.tls_cert is None or server.tls_key is None:
        return None
    try:
        parts = [Path(name).read_bytes() for name in (server.tls_cert, server.tls_key)]
    except OSError:
        return None
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check_exposure(config: Config) -> None:
    """Refuse to serve other machines without keys, unless told so."""
    server = config.server
    if config.key_hashes or server.allow_no_keys or server.loopback:
        return
    raise ConfigError(
        "server.host",
        server.host,
        "a loopback address, or tenants with keys (mileage keys create), or allow_no_keys = true",
    )


def _look(path: Path) -> Look | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return Look(status.st_ino, status.st_mtime_ns, status.st_size)
