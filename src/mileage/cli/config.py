"""Configuration: one TOML file, environment and flags, merged and checked as a whole."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mileage.control.config import ControlConfig, CostsConfig, GovernorConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.engines.config import EmbeddedConfig, EngineConfig
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.config import JournalConfig, ServerConfig, TenantConfig
from mileage.policy.breaker import BreakerConfig
from mileage.policy.merging import MergingConfig
from mileage.policy.routing import RoutingConfig
from mileage.policy.tenants import TenantLimits
from mileage.storage.config import LedgerConfig

__all__ = ["Config", "ledger_directory", "load_config", "state_directory"]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of mileage.toml. Every section and key may be left out."""

    server: ServerConfig = ServerConfig()
    admin: AdminConfig = AdminConfig()
    engines: tuple[EngineConfig, ...] = ()
    """Remote engines; without any, the embedded engine serves."""
    embedded: EmbeddedConfig = EmbeddedConfig()
    aliases: dict[str, str] = {}
    """Model names that clients may use -> names that engines serve."""
    tenants: dict[str, TenantConfig] = {}
    routing: RoutingConfig = RoutingConfig()
    breaker: BreakerConfig = BreakerConfig()
    governor: GovernorConfig = GovernorConfig()
    slo: SloConfig = SloConfig()
    merging: MergingConfig = MergingConfig()
    costs: CostsConfig = CostsConfig()
    journal: JournalConfig = JournalConfig()
    ledger: LedgerConfig = LedgerConfig()

    def __post_init__(self) -> None:
        owners: dict[str, str] = {}
        for tenant, config in self.tenants.items():
            for digest in config.key_hashes:
                if owners.setdefault(digest, tenant) != tenant:
                    expected = f"a key of its own (it belongs to {owners[digest]} too)"
                    raise ConfigError(f"tenants.{tenant}.key_hashes", digest, expected)
        for alias, model in self.aliases.items():
            if model in self.aliases:
                raise ConfigError(f"aliases.{alias}", model, "a model, not another alias")
        self.control()

    def control(self) -> ControlConfig:
        """What the controllers are told; raises ConfigError for parts that do not fit together."""
        limits = TenantLimits.__struct_fields__
        return ControlConfig(
            routing=self.routing,
            breaker=self.breaker,
            governor=self.governor,
            slo=self.slo,
            merging=self.merging,
            costs=self.costs,
            tenants={
                name: TenantLimits(**{field: getattr(tenant, field) for field in limits})
                for name, tenant in self.tenants.items()
            },
            replica_gpus={engine.replica: engine.gpus for engine in self.engines},
        )

    @property
    def key_hashes(self) -> dict[str, str]:
        """Hash of each key -> tenant."""
        return {h: name for name, tenant in self.tenants.items() for h in tenant.key_hashes}


def load_config(
    path: Path | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Merge flag > environment > file > default.

    `flags` maps dotted keys to values, None where a flag was not given; a table is added to that of
    the file, a list replaces it. The environment's keys are MILEAGE_SECTION_KEY. Raises
    ConfigError, which names the key, or the file and line.
    """
    environ = os.environ if environ is None else environ
    tree = _read(path) if path is not None else {}
    for section, struct in _sections().items():
        for field in msgspec.structs.fields(struct):
            text = environ.get(f"MILEAGE_{section}_{field.encode_name}".upper())
            if text is not None:
                key = f"{section}.{field.encode_name}"
                _put(tree, key, _from_text(key, text, field.type))
    for key, value in flags.items():
        if value is not None:
            _put(tree, key, value)
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise _config_error(error, path) from None


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where what outlives a run is kept: the ledger, the admin token."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "mileage"


def ledger_directory(config: LedgerConfig) -> Path:
    """Where the request records are: as configured, else below the state directory."""
    if config.directory is None:
        return state_directory() / "ledger"
    return Path(config.directory).expanduser()


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError("--config", str(path), f"a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError("--config", str(path), "a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("--config", str(path), f"valid TOML ({error})") from None


def _sections() -> dict[str, type[msgspec.Struct]]:
    """Sections whose keys the environment can set: those that are one struct."""
    return {
        field.encode_name: field.type
        for field in msgspec.structs.fields(Config)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }


def _from_text(key: str, text: str, kind: Any) -> Any:
    """A value out of its text: lists are separated by commas."""
    value: Any = text
    if getattr(kind, "__origin__", None) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError as error:
        variable = f"MILEAGE_{key.replace('.', '_').upper()}"
        raise ConfigError(variable, text, str(error).removesuffix(" - at `$`")) from None


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        below = tree.setdefault(parent, {})
        if not isinstance(below, dict):
            raise ConfigError(parent, below, "a table")
        tree = below
    known = tree.get(last)
    tree[last] = known | value if isinstance(known, dict) and isinstance(value, dict) else value


def _config_error(error: msgspec.ValidationError, path: Path | None) -> ConfigError:
    message, _, where = str(error).partition(" - at `$")
    where = where.removesuffix("`").removeprefix(".")
    if message.startswith("Object contains unknown field"):
        name = message.split("`")[1]
        key = f"{where}.{name}" if where else name
        file = f" of {path}" if path is not None else ""
        return ConfigError(
            key, "(present)", f"no such key{file}; see docs/reference/configuration.md"
        )
    return ConfigError(where or str(path), "(as given)", message)
