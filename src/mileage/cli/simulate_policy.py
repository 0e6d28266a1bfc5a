"""Spellings of policies and targets on the command line: `static:64+wait`, `ttft=2s,itl=60ms`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from mileage.control.config import GovernorConfig, LimitPolicyName
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.policy.limits.static import StaticConfig

__all__ = ["PolicyChoice", "policy_choice", "slo_of"]

_NAMES: Final = ("off", *get_args(LimitPolicyName))
_WAIT: Final = "+wait"
_UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_TIME: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|ms|us)")


class PolicyChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as it was asked for: its name in tables, and the governor that it stands for."""

    name: str
    governor: GovernorConfig


def policy_choice(text: str | None, base: GovernorConfig) -> PolicyChoice:
    """The policy of that spelling; None: that of the configuration, in its own mode.

    NAME[:LIMIT][+wait], of which only static takes a limit. What is not spelled is as in `base`.
    Raises ConfigError with the nearest names.
    """
    if text is None:
        return PolicyChoice(name="off" if base.mode != "act" else base.policy, governor=base)
    spelled, wait, rest = text.strip().partition(_WAIT)
    name, colon, limit = spelled.partition(":")
    if name not in _NAMES:
        near = get_close_matches(name, _NAMES, n=2, cutoff=0.4)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise ConfigError("--policy", text, f"one of {', '.join(_NAMES)}{hint}")
    if rest or (wait and name == "off"):
        raise ConfigError("--policy", text, "NAME[:LIMIT][+wait], such as static:64+wait")
    if name == "off":
        governor = replace(base, mode="off")
    else:
        governor = replace(base, mode="act", policy=name)
    if wait:
        governor = replace(governor, reject_late=False)
    if colon:
        if name != "static" or not (limit.isascii() and limit.isdigit() and len(limit) < 9):
            raise ConfigError("--policy", text, "static:LIMIT, such as static:64; no other has one")
        try:
            governor = replace(governor, static=StaticConfig(limit=int(limit)))
        except ConfigError as error:
            raise ConfigError("--policy", text, f"a limit of {error.expected}") from None
    return PolicyChoice(name=text.strip(), governor=governor)


def slo_of(text: str) -> SloConfig:
    """Targets as `ttft=2s,itl=60ms`, either or both. Raises ConfigError for other spellings."""
    found: dict[str, float] = {}
    for item in text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in ("ttft", "itl") or f"{key}_s" in found:
            raise ConfigError("--slo", text, "ttft=TIME,itl=TIME, or one of them")
        match = _TIME.fullmatch(value)
        if match is None:
            raise ConfigError("--slo", item.strip(), f"{key}=TIME with its unit: 2s, 60ms, 500us")
        found[f"{key}_s"] = float(match[1]) * _UNITS_S[match[2]]
    try:
        return SloConfig(ttft_s=found.get("ttft_s"), itl_s=found.get("itl_s"))
    except ConfigError as error:
        raise ConfigError("--slo", text, error.expected) from None
