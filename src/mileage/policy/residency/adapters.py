"""What is configured of LoRA adapters: `[[adapters]]`, the catalogue, and `[lora]`, its rules."""

from __future__ import annotations

import re

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError

__all__ = ["AdapterConfig", "LoraConfig", "check_catalogue"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_PART = r"[A-Za-z0-9][\w.-]*"
_HUB = re.compile(rf"hf:{_PART}/{_PART}((@{_PART})?/({_PART}/)*{_PART}\.gguf)?", re.ASCII)


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[adapters]]` entry: an adapter that is loaded when it is asked for."""

    name: str
    """The model name that clients use for it."""
    path: str
    """A directory or GGUF file as the engine's machine sees it, or a hub id: hf:OWNER/REPO, for the
    embedded engine hf:OWNER/REPO[@REVISION]/FILE.gguf."""
    base: str
    """The model that it is for, by the name under which engines serve that."""
    pinned: bool = False
    """Loaded on every replica of its base model, and never unloaded for another."""
    tenant: str | None = None
    """The only tenant that may use it; None: all may."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            expected = "up to 128 letters, digits and . _ : / -, a letter or digit first"
            raise ConfigError("adapters.name", self.name, expected)
        if not self.path or not self.path.isprintable():
            raise ConfigError("adapters.path", self.path, f"a path (adapter {self.name})")
        if self.path.startswith("hf:") and not _HUB.fullmatch(self.path):
            expected = "hf:OWNER/REPO, which engines fetch (they take no @REVISION), or for the"
            expected += f" embedded engine hf:OWNER/REPO[@REVISION]/FILE.gguf (adapter {self.name})"
            raise ConfigError("adapters.path", self.path, expected)
        if not self.base or self.base == self.name:
            expected = f"the name of the model that it is for (adapter {self.name})"
            raise ConfigError("adapters.base", self.base, expected)


class LoraConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[lora]`: when adapters are loaded and unloaded. How long requests wait for one, and
    how many, is in `[loads]`."""

    half_life_s: float = 600.0
    """A use of an adapter counts half after this time; that is also how far its demand is taken to
    go on as it was."""
    residence_ratio: float = 1.0
    """An adapter stays at least this many times as long as it took to load, so that where more is
    wanted than fits at most one part in 1 + this of the time is spent on loading."""
    idle_unload_s: float | None = 3600.0
    """Unload what nobody has used for so long; None: never."""
    prefetch: bool = True
    """Load what is wanted often before it is asked for."""
    load_assumed_s: float = 2.0
    """What a load takes, until one was measured."""
    load_timeout_s: float = 120.0
    """A load that takes longer has failed."""
    retry_s: float = 5.0
    """Pause after a load that failed; doubles each time. Until then requests are refused."""
    retry_max_s: float = 300.0
    """The longest such pause."""
    host_cache_bytes: int = 2 * 1024**3
    """Adapter files on this machine that are read into memory ahead of their loads; 0: none."""

    def __post_init__(self) -> None:
        for key in ("half_life_s", "load_assumed_s", "load_timeout_s", "retry_s"):
            require_positive(f"lora.{key}", getattr(self, key))
        if self.idle_unload_s is not None:
            require_positive("lora.idle_unload_s", self.idle_unload_s)
        require_at_least("lora.residence_ratio", self.residence_ratio, 0.0)
        require_at_least("lora.retry_max_s", self.retry_max_s, self.retry_s)
        require_range("lora.host_cache_bytes", self.host_cache_bytes, 0, 1 << 44)


def check_catalogue(adapters: tuple[AdapterConfig, ...], taken: dict[str, str]) -> None:
    """Refuse two adapters of one name, and one with the name of what is `taken` (name -> of what).

    Raises ConfigError.
    """
    known = dict(taken)
    for place, adapter in enumerate(adapters):
        if adapter.name in known:
            expected = f"a name of its own ({known[adapter.name]} has it)"
            raise ConfigError(f"adapters[{place}].name", adapter.name, expected)
        known[adapter.name] = "another adapter"
