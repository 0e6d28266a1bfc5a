"""Configuration of idle models: when one that nobody uses is unloaded or put to sleep."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range, require_up_to
from mileage.policy.residency.warm_window import parse_window

__all__ = ["IdleConfig", "IdlePolicyName", "ModelIdleConfig"]

IdlePolicyName: TypeAlias = Literal["break_even", "fixed", "never"]


class ModelIdleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[idle.models."NAME"]`: what is different for one model; the rest is as in `[idle]`."""

    policy: IdlePolicyName | None = None
    """break_even, fixed or never."""
    fixed_s: float | None = None
    """Seconds without a request after which the policy `fixed` unloads it."""
    wait_cost_ratio: float | None = None
    """What a second costs that a client waits for it."""
    keep_warm: tuple[str, ...] | None = None
    """Hours in which it stays loaded."""
    tenants: tuple[str, ...] = ()
    """Only these tenants may use it; for all others it does not exist. Empty: all may."""

    def __post_init__(self) -> None:
        _check("idle.models.*", self)


class IdleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[idle]`: when a model of `[[models]]`, or an engine with a `sleep_level`, is
    unloaded or put to sleep because nobody uses it."""

    policy: IdlePolicyName = "break_even"
    """break_even: when loading it again is worth less than keeping it, by the pauses seen so far;
    fixed: after `fixed_s`; never: only when asked, or when another needs its memory."""
    fixed_s: float = 300.0
    """Seconds without a request after which the policy `fixed` unloads a model."""
    wait_cost_ratio: float = 60.0
    """What a second costs that a client waits for a load, in seconds that the model is kept loaded
    for nothing. With it and the seconds of a load the break-even is known."""
    resident_min_s: float = 30.0
    """Once loaded a model stays at least as long."""
    memory_max_bytes: int | None = None
    """What all models of `[[models]]` together may take; whose use is the least likely, and who is
    quickly loaded again, makes room. None: no limit."""
    keep_warm: tuple[str, ...] = ()
    """Hours in which models stay loaded, and are loaded ahead: `mon-fri 08:00-18:00`."""
    time_zone: str = "UTC"
    """Of those hours: a name like Europe/Berlin."""
    retry_s: float = 5.0
    """After a load that failed, the next is tried no earlier than this; doubles each time."""
    retry_max_s: float = 300.0
    """The longest such pause."""
    models: dict[str, ModelIdleConfig] = {}

    def __post_init__(self) -> None:
        _check("idle", self)
        require_range("idle.resident_min_s", self.resident_min_s, 0.0, 86_400.0)
        if self.memory_max_bytes is not None:
            require_at_least("idle.memory_max_bytes", self.memory_max_bytes, 1)
        require_positive("idle.retry_s", self.retry_s)
        require_up_to("idle.retry_s", self.retry_s, self.retry_max_s)

    def private_models(self) -> dict[str, tuple[str, ...]]:
        """Models that only some tenants may use, and those tenants."""
        return {name: its.tenants for name, its in self.models.items() if its.tenants}

    def of(self, model: str) -> IdleConfig:
        """What is in force for a model of this name."""
        its = self.models.get(model)
        if its is None:
            return self
        keys = ("policy", "fixed_s", "wait_cost_ratio", "keep_warm")
        own = {key: value for key in keys if (value := getattr(its, key)) is not None}
        return msgspec.structs.replace(self, **own)


def _check(section: str, config: IdleConfig | ModelIdleConfig) -> None:
    if config.fixed_s is not None:
        require_range(f"{section}.fixed_s", config.fixed_s, 0.0, 1e9)
    if config.wait_cost_ratio is not None:
        require_range(f"{section}.wait_cost_ratio", config.wait_cost_ratio, 0.0, 1e6)
    for text in config.keep_warm or ():
        parse_window(f"{section}.keep_warm", text)
