"""PolicySettings: which of Mileage's policies decide inside the engine, and their targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from mileage.core.bounds import require_positive
from mileage.core.errors import ConfigError
from mileage.policy.budget.choose import BudgetPolicyName
from mileage.policy.budget.model import ModelBudgetConfig
from mileage.policy.ordering.choose import OrderingPolicyName

__all__ = ["POLICY_VARIABLE", "PolicySettings", "decode_policy", "policy_from_environment"]

POLICY_VARIABLE = "MILEAGE_POLICY"

EngineLimitName: TypeAlias = Literal["aimd", "volatility", "tail_memory", "model"]
"""Those that go by what an engine knows itself: not by its device's activity, or the media of
requests."""


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides at each step boundary. None: the engine's own value stays in force.

    Raises ConfigError for a target that is no positive number, and where a policy is chosen that
    lacks the target that it keeps.
    """

    budget: BudgetPolicyName | None = None
    """Prompt tokens of each step."""
    limits: EngineLimitName | None = None
    """Requests that run at once."""
    ordering: OrderingPolicyName | None = None
    """Which prompt is next; only where the engine was started with Mileage's scheduler class."""
    itl_target_s: float | None = None
    ttft_target_s: float | None = None
    model: ModelBudgetConfig = ModelBudgetConfig()
    """Of the budget `model`."""

    def __post_init__(self) -> None:
        for key in ("itl_target_s", "ttft_target_s"):
            value = getattr(self, key)
            if value is not None:
                require_positive(f"policy.{key}", value)
        if self.itl_target_s is None:
            for name, chosen in (("budget", self.budget == "model"), ("limits", self.limits)):
                if chosen in (True, "aimd"):
                    told = f"a target in seconds, which {name}={getattr(self, name)} keeps"
                    raise ConfigError("policy.itl_target_s", None, told)
        if self.budget is None and self.ordering == "shortest":
            told = (
                "fixed or model: they learn how long prompts take, which ordering=shortest goes by"
            )
            raise ConfigError("policy.budget", None, told)
        if self.ttft_target_s is None and self.ordering == "deadline":
            told = "a target in seconds, which is what ordering=deadline goes by"
            raise ConfigError("policy.ttft_target_s", None, told)


_KINDS = get_type_hints(PolicySettings)


def decode_policy(document: object) -> PolicySettings | None:
    """The settings that a request's `policy` asks for; None, and one that names no policy: all off.

    Raises ConfigError, which names the field.
    """
    if document is None:
        return None
    if not isinstance(document, dict):
        raise ConfigError("policy", document, "an object, or null to switch policies off")
    for key, value in document.items():
        if key not in _KINDS:
            raise ConfigError(f"policy.{key}", value, f"one of {', '.join(_KINDS)}")
        _check(key, value)
    settings = msgspec.convert(document, PolicySettings)
    none = settings.budget is None and settings.limits is None and settings.ordering is None
    return None if none else settings


def _check(key: str, value: Any) -> None:
    kind = _KINDS[key]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        choices = [name for part in (kind, *get_args(kind)) for name in _names(part)]
        told = f"one of {', '.join(choices)}, or null" if choices else str(error)
        raise ConfigError(f"policy.{key}", value, told) from None


def _names(kind: Any) -> list[str]:
    return [name for name in get_args(kind) if isinstance(name, str)]


def policy_from_environment(environment: Mapping[str, str]) -> PolicySettings | None:
    """What `MILEAGE_POLICY`, a JSON object like a request's `policy`, asks for; None without it.

    Raises ConfigError.
    """
    text = environment.get(POLICY_VARIABLE, "").strip()
    if not text:
        return None
    try:
        document = json.loads(text)
    except ValueError:
        expected = 'a JSON object, such as {"budget": "model", "itl_target_s": 0.05}'
        raise ConfigError(POLICY_VARIABLE, text, expected) from None
    try:
        return decode_policy(document)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, error.expected, place=POLICY_VARIABLE) from None
