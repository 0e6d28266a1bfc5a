"""Configuration of engines: `[[engines]]` for remote ones, `[embedded]` for our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from mileage.core.bounds import (
    require_at_least,
    require_positive,
    require_range,
    require_up_to,
)
from mileage.core.errors import ConfigError
from mileage.engines.control_config import EngineControlConfig
from mileage.wire.url import display_url, origin

__all__ = ["CPU", "EmbeddedConfig", "EngineConfig", "EngineKind"]

CPU = "cpu"
"""In place of a GPU's name: the engine runs on its host's processor."""

_GPU_ID = re.compile(r"(\d{1,4}|GPU-[0-9A-Za-z-]{1,64})(/\d{1,2})?", re.ASCII)

_LOADS_ADAPTERS = ("vllm", "sglang")

EngineKind = Literal["vllm", "sglang", "trtllm", "triton", "llamacpp", "openai"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[engines]]` entry: one replica of a remote engine."""

    kind: EngineKind
    """What the engine is: where its health and metrics are, and what it can do."""
    url: str
    """Where it is: http://host:port or https://host:port."""
    name: str | None = None
    """Defaults to host:port of the url."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the engine's own API key."""
    models: tuple[str, ...] = ()
    """Models it serves; empty: ask the engine's /v1/models."""
    metrics_url: str | None = None
    """Defaults to the kind's usual place."""
    stream_usage: bool | None = None
    """Understands stream_options.include_usage; None: as the kind usually does."""
    health_interval_s: float = 2.0
    """Between two health checks."""
    health_timeout_s: float = 2.0
    """A health check without an answer by then has failed."""
    scrape_interval_s: float = 1.0
    """Between two readings of its metrics."""
    dcgm_url: str | None = None
    """A DCGM exporter's page that has its GPUs (http://host:9400/metrics): how busy they are."""
    nvml: bool = False
    """Its GPUs are in this machine, Hopper or newer: ask NVML how busy they are."""
    gpu_ids: tuple[str, ...] = ()
    """Its GPUs there, by index or UUID, or either with /ID of a MIG instance; empty: all."""
    kv_events_url: str | None = None
    """Where it publishes the events of its prefix cache (tcp://host:5557): the endpoint of vLLM's
    --kv-events-config. Needs pyzmq: pip install 'mileage[kv_events]'."""
    kv_events_replay_url: str | None = None
    """Where it tells again what was missed of them: replay_endpoint there."""
    kv_events_ranks: int = 1
    """Data-parallel ranks that publish; rank r at the port of the address plus r."""
    running_max: int | None = None
    """Requests that the engine runs at once (vLLM's max_num_seqs, say). None: as it tells, or as
    is seen of it."""
    lora_slots: int = 0
    """Adapters of `[[adapters]]` that it holds at once (vLLM's max_loras), where it loads them
    while it runs: vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, SGLang with --enable-lora. 0: it
    does not."""
    sleep_level: Literal[1, 2] | None = None
    """Put it to sleep when nobody uses it (vLLM with --enable-sleep-mode and
    VLLM_SERVER_DEV_MODE=1): 1 keeps the weights in the host's memory, 2 reads them again from the
    disk. None: never. When: see `[idle]`."""
    gpus: float = 1.0
    """GPUs of this engine, for budgets and costs; a fraction where several engines share one."""
    gpu: str | None = None
    """What its GPUs are, for costs: a name of the catalogue (H100-SXM5-80GB, h100), or cpu for an
    engine without any. None: not known."""
    connections_max: int = 4096
    """Connections to it; with several workers each has an equal share."""
    connect_timeout_s: float = 5.0
    """To make a connection."""
    response_timeout_s: float = 600.0
    """From the request sent to the first byte of the answer, and between later bytes."""
    control: EngineControlConfig | None = None
    """None: the gateway's own limit is all there is."""

    def __post_init__(self) -> None:
        with self.named():
            self._check()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Make a ConfigError of what is done with this entry say which one it is."""
        try:
            yield
        except ConfigError as error:
            which = self.name or display_url(self.url)
            if which == error.value:
                raise
            raise ConfigError(
                error.key, error.value, f"{error.expected} (engine {which})"
            ) from error

    def _check(self) -> None:
        try:
            origin(self.url)
        except ValueError as error:  # shown without the password that it may hold
            expected = "http://host:port or https://host:port"
            raise ConfigError("engines.url", display_url(self.url), expected) from error
        for key in (
            "health_interval_s",
            "health_timeout_s",
            "scrape_interval_s",
            "connect_timeout_s",
            "response_timeout_s",
        ):
            require_positive(f"engines.{key}", getattr(self, key))
        self._check_gpus()
        require_range("engines.kv_events_ranks", self.kv_events_ranks, 1, 1024)
        if self.kv_events_replay_url is not None and self.kv_events_url is None:
            shown = display_url(self.kv_events_replay_url)
            expected = "none without kv_events_url"
            raise ConfigError("engines.kv_events_replay_url", shown, expected)
        require_at_least("engines.connections_max", self.connections_max, 1)
        require_range("engines.lora_slots", self.lora_slots, 0, 10_000)
        if self.lora_slots and self.kind not in _LOADS_ADAPTERS:
            expected = f"0: of the kinds only {' and '.join(_LOADS_ADAPTERS)} load adapters"
            raise ConfigError("engines.lora_slots", self.lora_slots, expected)
        if self.running_max is not None:
            require_at_least("engines.running_max", self.running_max, 1)
        require_positive("engines.gpus", self.gpus, "GPUs")
        if self.sleep_level is not None and self.kind != "vllm":
            raise ConfigError("engines.sleep_level", self.sleep_level, "none: only vLLM sleeps")
        if self.sleep_level is not None and self.lora_slots:
            raise ConfigError("engines.sleep_level", self.sleep_level, "none beside lora_slots")

    def _check_gpus(self) -> None:
        if self.gpu is not None:
            try:
                _gpu_name(self.gpu)
            except ConfigError as error:
                expected = f"{error.expected}, or {CPU}"
                raise ConfigError("engines.gpu", self.gpu, expected) from None
        if self.nvml and self.dcgm_url is not None:
            raise ConfigError("engines.nvml", True, "false, or no dcgm_url: one source of the two")
        if self.gpu_ids and not self.nvml and self.dcgm_url is None:
            raise ConfigError("engines.gpu_ids", self.gpu_ids, "dcgm_url or nvml beside it")
        for gpu_id in self.gpu_ids:
            if not _GPU_ID.fullmatch(gpu_id):
                expected = "an index (0), a UUID (GPU-...), or either with a MIG instance (0/3)"
                raise ConfigError("engines.gpu_ids", gpu_id, expected)

    @property
    def replica(self) -> str:
        """The replica's name: as configured, else host:port."""
        return self.name or urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def gpu_name(self) -> str:
        """What its GPUs are, as the catalogue spells it; empty: not known."""
        return "" if self.gpu is None else _gpu_name(self.gpu)


class EmbeddedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[embedded]`: llama.cpp in a child process of ours; used where no engine is given."""

    model: str = "smollm2"
    """`smollm2`, a path to a GGUF file, or a hub id: hf:OWNER/REPO/FILE.gguf."""
    served_name: str | None = None
    """Name that clients use; defaults to smollm2 or the file's stem."""
    slots: int = 8
    """Requests that run at once."""
    context_tokens: int = 2048
    """Context of each slot."""
    threads: int | None = None
    """None: one per core."""
    cache_type_k: Literal["f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "bf16", "f32"] = "f16"
    """Type of the keys in the KV cache."""
    cache_type_v: Literal["f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "bf16", "f32"] = "f16"
    """Type of the values in the KV cache."""
    lora: tuple[str, ...] = ()
    """Adapter GGUF files that every request uses."""
    lora_slots: int = 4
    """Adapters of `[[adapters]]` that it holds at once. Loading others starts a second process,
    which takes over: memory for a second KV cache is needed meanwhile. 0: it loads none."""
    weights: Literal["as-is", "q4_0", "q8_0"] = "as-is"
    """Convert the weights once, to a type that this CPU runs faster; loses some quality."""
    restart_backoff_s: float = 0.5
    """Pause before the engine is started again after it died; doubles each time."""
    restart_backoff_max_s: float = 30.0
    """The longest such pause."""

    def __post_init__(self) -> None:
        require_range("embedded.slots", self.slots, 1, 256)
        require_range("embedded.lora_slots", self.lora_slots, 0, 256)
        require_range("embedded.context_tokens", self.context_tokens, 64, 1_048_576)
        if self.threads is not None:
            require_range("embedded.threads", self.threads, 1, 1024, note=", or leave it out")
        require_up_to(
            "embedded.restart_backoff_s", self.restart_backoff_s, self.restart_backoff_max_s
        )


def _gpu_name(name: str) -> str:
    """As the catalogue spells it. ConfigError with the nearest names where it has none."""
    if name == CPU:
        return CPU
    from mileage.costmodel.catalogue import gpu  # here: it takes longer to load than all the rest

    return gpu(name).name
