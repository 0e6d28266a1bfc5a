"""Adapters: puts together what loads the LoRA adapters of a gateway on demand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from mileage.cli.config import Config
from mileage.cli.replicas import EMBEDDED, Replicas
from mileage.core.adapter_loader import AdapterLoader
from mileage.core.errors import ModelFileError
from mileage.core.events import Event
from mileage.core.replica import Adapter
from mileage.core.request import Endpoint
from mileage.engines.embedded.adapters import EmbeddedAdapters
from mileage.engines.embedded.hub_model import fetch_hub_model
from mileage.engines.embedded.model_files import read_header
from mileage.engines.embedded.resolve import served_name
from mileage.engines.host_cache import HostCache
from mileage.engines.lora_endpoints import LoraEndpoints
from mileage.gateway.adapter_desk import AdapterDesk
from mileage.gateway.adapter_state import AdapterStates
from mileage.gateway.config import Upstream
from mileage.policy.residency.adapters import AdapterConfig
from mileage.wire.fetch import fetch

__all__ = ["Adapters"]

_CACHE_S = 10.0
_EMBEDDED_ENDPOINTS: tuple[Endpoint, ...] = ("chat", "completions")
"""Where llama.cpp lets a request choose its adapter."""
_log = logging.getLogger(__name__)


class Adapters:
    """The desk, a loader for each replica that can load, and the files kept in memory.

    `deliver` and `heard` are the workers': see AdapterDesk. `retarget` lets them call a replica
    anew, after it has moved.
    """

    def __init__(
        self,
        replicas: Replicas,
        model_path: Path | None,
        *,
        deliver: Callable[[Event], None],
        heard: Callable[[float], Awaitable[bool]],
        retarget: Callable[[], None],
    ) -> None:
        self._replicas, self._model_path, self._retarget = replicas, model_path, retarget
        self.desk = AdapterDesk(
            deliver=deliver,
            heard=heard,
            told_anew=replicas.tell_again,
            look_again=replicas.look_again,
            locate=self._locate,
            fetch=self._fetch,
        )
        self._embedded: EmbeddedAdapters | None = None
        self._cache = HostCache()
        self._config: Config | None = None
        self._fetched: dict[str, Path] = {}
        """Files of the hub, by the path that is configured."""
        replicas.desk = self.desk

    def configure(self, config: Config) -> None:
        """Other adapters, engines or rules."""
        self._config = config
        self.desk.configure(config.lora, config.adapters, self._loaders(config))
        for engine in self._replicas.engines:
            self._replicas.tell_again(engine.name)

    def withhold(self, config: Config) -> None:
        """What is another adapter in this configuration, or none, is not used from now on."""
        self.desk.withhold(config.adapters)

    def states(self) -> AdapterStates:
        """How all stand."""
        return self.desk.states(host_cache_bytes=self._cache.bytes)

    @property
    def endpoints(self) -> tuple[Endpoint, ...] | None:
        """Those at which requests may name an adapter; None: at all."""
        return None if self._model_path is None else _EMBEDDED_ENDPOINTS

    def fields(self, upstream: Upstream) -> dict[str, str]:
        """By model: what requests there are to say of adapters."""
        if self._embedded is None or self._config is None or upstream.name != EMBEDDED:
            return {}
        return self._embedded.choices(served_name(self._config.embedded))

    async def run(self) -> None:
        """Load and unload, and keep files in memory, until cancelled."""
        try:
            await asyncio.gather(self.desk.run(), self._keep_files())
        finally:
            if self._embedded is not None:
                await self._embedded.stop()
            self._cache.clear()

    def _loaders(self, config: Config) -> Mapping[str, AdapterLoader]:
        if self._model_path is not None:
            own = self._own_loader(config, self._model_path)
            return {} if own is None else {EMBEDDED: own}
        slots = {entry.replica: entry.lora_slots for entry in config.engines if entry.lora_slots}
        return {
            engine.name: LoraEndpoints(
                engine.kind,
                engine.url,
                engine.authorization,
                slots=slots[engine.name],
                timeout_s=config.lora.load_timeout_s,
                fetch=fetch,
            )
            for engine in self._replicas.engines
            if engine.name in slots
        }

    def _own_loader(self, config: Config, model_path: Path) -> EmbeddedAdapters | None:
        engine = self._replicas.embedded
        if engine is None or not config.embedded.lora_slots:
            return None
        if self._embedded is None and config.adapters:
            self._embedded = EmbeddedAdapters(
                engine,
                model_path,
                always_on=len(config.embedded.lora),
                slots=config.embedded.lora_slots,
                drain_s=config.server.drain_timeout_s,
                moved=self._moved,
            )
        return self._embedded

    async def _moved(self) -> None:
        """The embedded engine's process was replaced: it is elsewhere, with other adapters."""
        assert self._embedded is not None
        assert self._config is not None
        base = served_name(self._config.embedded)
        held = tuple(Adapter(name, name, base) for name in self._embedded.held)
        await self._replicas.move_embedded(held)
        self._retarget()

    def _locate(self, replica: str, adapter: AdapterConfig) -> str | None:
        """Where the replica's engine finds it; a file from the hub is fetched for our own first."""
        if replica != EMBEDDED or self._model_path is None:
            return adapter.path.removeprefix("hf:")
        if not adapter.path.startswith("hf:"):
            return str(Path(adapter.path).expanduser())
        path = self._fetched.get(adapter.path)
        return str(path) if path is not None and path.exists() else None

    def _fetch(self, adapter: AdapterConfig) -> None:
        """Blocks for as long as the hub takes."""
        path = fetch_hub_model(adapter.path, progress=lambda label, done, total: None)
        self._fetched[adapter.path] = path

    async def _keep_files(self) -> None:
        """Keep the files of what is wanted most in memory."""
        looked_at: tuple[AdapterConfig, ...] = ()
        while True:
            config = self._config
            if self._model_path is not None and config and config.adapters != looked_at:
                looked_at = config.adapters
                await asyncio.to_thread(_warn_of_absent, looked_at)
            if config is not None and config.adapters:
                order = sorted(
                    self.desk.states().adapters, key=lambda each: (not each.pinned, -each.heat)
                )
                paths = [self._file(each.path) for each in order]
                found = [path for path in paths if path is not None]
                bytes_max = config.lora.host_cache_bytes
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._cache.keep, found, bytes_max)
            await asyncio.sleep(_CACHE_S)

    def _file(self, path: str) -> Path | None:
        if path.startswith("hf:"):
            return self._fetched.get(path)
        try:
            return Path(path).expanduser()
        except RuntimeError:  # a user whom only the engine's machine knows
            return None


def _warn_of_absent(adapters: Iterable[AdapterConfig]) -> None:
    """The engine of our own reads files of this machine: who asks for one that is not there is
    refused, and whoever has configured it is to know before."""
    for adapter in adapters:
        try:
            if not adapter.path.startswith("hf:"):
                read_header(Path(adapter.path).expanduser())
        except (ModelFileError, RuntimeError) as error:
            _log.warning("adapter %s cannot be loaded: %s", adapter.name, error)
