"""Configuration: one TOML file, environment and flags, merged and checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.time_zone import zone_of
from mileage.control.config import ControlConfig, CostsConfig, GovernorConfig, LoadsConfig
from mileage.control.experiment_config import ExperimentConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.engines.config import EmbeddedConfig, EngineConfig
from mileage.engines.embedded.resolve import served_name
from mileage.engines.model_config import ModelConfig
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.config import JournalConfig, ServerConfig, TenantConfig
from mileage.gateway.tokenizer_config import TokenizerConfig
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.billing_config import BillingConfig
from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.policy.breaker import BreakerConfig
from mileage.policy.merging import MergingConfig
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig, check_catalogue
from mileage.policy.residency.idle_config import IdleConfig
from mileage.policy.routing import RoutingConfig
from mileage.policy.tenants import TenantLimits
from mileage.scrape.telemetry_config import TelemetryConfig
from mileage.storage.config import LedgerConfig

__all__ = ["Config", "journal_directory", "ledger_directory", "load_config", "state_directory"]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of mileage.toml. Every section and key may be left out."""

    server: ServerConfig = ServerConfig()
    admin: AdminConfig = AdminConfig()
    engines: tuple[EngineConfig, ...] = ()
    """Remote engines; without any, the embedded engine serves."""
    embedded: EmbeddedConfig = EmbeddedConfig()
    models: tuple[ModelConfig, ...] = ()
    """Embedded models that are loaded when they are needed; in place of `[embedded]`."""
    idle: IdleConfig = IdleConfig()
    loads: LoadsConfig = LoadsConfig()
    adapters: tuple[AdapterConfig, ...] = ()
    """LoRA adapters that are loaded when they are asked for."""
    lora: LoraConfig = LoraConfig()
    aliases: dict[str, str] = {}
    """Model names that clients may use -> names that engines serve."""
    tenants: dict[str, TenantConfig] = {}
    routing: RoutingConfig = RoutingConfig()
    breaker: BreakerConfig = BreakerConfig()
    governor: GovernorConfig = GovernorConfig()
    slo: SloConfig = SloConfig()
    merging: MergingConfig = MergingConfig()
    experiment: ExperimentConfig = ExperimentConfig()
    costs: CostsConfig = CostsConfig()
    attribution: AttributionConfig = AttributionConfig()
    billing: BillingConfig = BillingConfig()
    bottleneck: BottleneckConfig = BottleneckConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    journal: JournalConfig = JournalConfig()
    ledger: LedgerConfig = LedgerConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    warm_up: WarmUpConfig = WarmUpConfig()

    def __post_init__(self) -> None:
        owners: dict[str, str] = {}
        for tenant, config in self.tenants.items():
            for digest in config.keys:
                if owners.setdefault(digest, tenant) != tenant:
                    expected = f"a key of its own (it belongs to {owners[digest]} too)"
                    shown = f"{digest[:15]}..."
                    raise ConfigError(f"tenants.{tenant}.key_hashes", shown, expected)
        for alias, model in self.aliases.items():
            if model in self.aliases:
                raise ConfigError(f"aliases.{alias}", model, "a model, not another alias")
        self._check_limit()
        self._check_adapters()
        self._check_budgets()
        self._check_models()
        known = [*(e.replica for e in self.engines), *(m.replica for m in self.models)]
        self.experiment.check_replicas(known or ["embedded"])
        zone_of(self.billing.timezone)
        self.control()

    def _check_models(self) -> None:
        """Each replica has a name of its own, and one section only says what is embedded."""
        if self.models and self.embedded != EmbeddedConfig():
            raise ConfigError("embedded", "settings", "none of them where [[models]] is used")
        names = [engine.replica for engine in self.engines]
        for model in self.models:
            if model.replica in names:
                expected = "a name that no other model or engine has"
                raise ConfigError("models.served_name", model.replica, expected)
            names.append(model.replica)
        zone_of(self.idle.time_zone, "idle.time_zone")
        own = names or [served_name(self.embedded)]
        known = sorted({*own, *(adapter.name for adapter in self.adapters)})
        for name in () if self.engines else self.idle.models:
            if name not in known:
                raise ConfigError("idle.models", name, f"one of {', '.join(known)}")
        for name, tenants in self.idle.private_models().items():
            for tenant in tenants:
                if tenant not in self.tenants:
                    key = f"idle.models.{name}.tenants"
                    raise ConfigError(key, tenant, "a tenant that is configured")

    def _check_limit(self) -> None:
        """A limit that no engine can have is a mistake, where it is known what they can."""
        governor, known = self.governor, self._running_max()
        limit = governor.static.limit
        if (
            governor.policy != "static"
            or limit is None
            or len(known) < len(self.engines) + len(self.models)
        ):
            return
        most = max(known.values())
        if limit > most:
            key = "engines.running_max" if self.engines else "embedded.slots"
            key = "models.slots" if self.models else key
            expected = f"at most {most}, as many as an engine runs at once ({key})"
            raise ConfigError("governor.static.limit", limit, expected)

    def _check_adapters(self) -> None:
        """Adapters are names of models, for tenants that there are, and of a base model that some
        engine has that is to load them."""
        own = None if self.engines or self.models else served_name(self.embedded)
        taken = dict.fromkeys(self.aliases, "an alias")
        taken |= dict.fromkeys((name for e in self.engines for name in e.models), "a model")
        taken |= dict.fromkeys((model.replica for model in self.models), "a model")
        check_catalogue(self.adapters, taken if own is None else {**taken, own: "the model"})
        for place, adapter in enumerate(self.adapters):
            key = f"adapters[{place}]"
            if adapter.tenant is not None and adapter.tenant not in self.tenants:
                expected = f"a tenant that is configured (adapter {adapter.name})"
                raise ConfigError(f"{key}.tenant", adapter.tenant, expected)
            if own is None:
                self._check_base(adapter, key)
            elif adapter.base != own:
                expected = f"{own}, the model of the embedded engine (adapter {adapter.name})"
                raise ConfigError(f"{key}.base", adapter.base, expected)
            elif adapter.path.startswith("hf:") and not adapter.path.endswith(".gguf"):
                expected = f"hf:OWNER/REPO/FILE.gguf (adapter {adapter.name})"
                raise ConfigError(f"{key}.path", adapter.path, expected)
        pinned = sum(adapter.pinned for adapter in self.adapters)
        least = max(pinned, min(len(self.adapters), 1))
        if own is not None and least > self.embedded.lora_slots:
            expected = f"at least {least}: there are adapters, {pinned} of them pinned"
            raise ConfigError("embedded.lora_slots", self.embedded.lora_slots, expected)

    def _check_base(self, adapter: AdapterConfig, key: str) -> None:
        """Some engine is to load the adapter: models of `[[models]]` load none."""
        loaders = [engine for engine in self.engines if engine.lora_slots]
        if not loaders:
            expected = f"at least 1 at an engine that is to load adapter {adapter.name}"
            raise ConfigError("engines.lora_slots", 0, expected)
        known = {name for engine in loaders for name in engine.models}
        listed = all(engine.models for engine in loaders)  # else the engine will say what it has
        asleep = any(adapter.base == model.replica for model in self.models)
        if adapter.base not in known and (listed or asleep):
            expected = "a model of an engine with lora_slots"
            expected += "; those of [[models]] load no adapters" if asleep else ""
            raise ConfigError(f"{key}.base", adapter.base, f"{expected} (adapter {adapter.name})")
        pinned = sum(each.pinned and each.base == adapter.base for each in self.adapters)
        most = max(engine.lora_slots for engine in loaders)
        if pinned > most:
            expected = f"at least {pinned}: so many adapters of {adapter.base} are pinned"
            raise ConfigError("engines.lora_slots", most, expected)

    def _check_budgets(self) -> None:
        """What was spent before a start is known of the ledger only."""
        for name, tenant in self.tenants.items():
            if tenant.budgets and not self.ledger.enabled:
                key, found = f"tenants.{name}.budgets", f"{len(tenant.budgets)} budgets"
                raise ConfigError(key, found, "none where ledger.enabled is false")

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
            loads=self.loads,
            tenants={
                name: TenantLimits(**{field: getattr(tenant, field) for field in limits})
                for name, tenant in self.tenants.items()
            },
            replica_gpus={engine.replica: engine.gpus for engine in self.engines},
            replica_running_max=self._running_max(),
        )

    def _running_max(self) -> dict[str, int]:
        if not (self.engines or self.models):
            return {"embedded": self.embedded.slots}
        remote = {e.replica: e.running_max for e in self.engines if e.running_max is not None}
        return {**remote, **{model.replica: model.slots for model in self.models}}

    @property
    def key_hashes(self) -> dict[str, str]:
        """Hash of each key -> tenant."""
        return {digest: name for name, tenant in self.tenants.items() for digest in tenant.keys}

    @property
    def key_names(self) -> dict[str, str]:
        """Hash of each key that has a name -> that name."""
        named = (pair for tenant in self.tenants.values() for pair in tenant.keys.items())
        return {digest: name for digest, name in named if name is not None}


def load_config(
    path: Path | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Merge flag > environment > file > default.

    `flags` maps dotted keys to values, None where a flag was not given; a table is added to that of
    the file, a list replaces it. The environment's keys are MILEAGE_SECTION_KEY. Raises
    ConfigError, which names the key and where it is written: file and line, or variable.
    """
    environ = os.environ if environ is None else environ
    return Document(path, flags, environ, Config).decode(Config)


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


def journal_directory(config: JournalConfig) -> Path:
    """Where the journal is: as configured, else below the state directory."""
    if config.directory is None:
        return state_directory() / "journal"
    return Path(config.directory).expanduser()
