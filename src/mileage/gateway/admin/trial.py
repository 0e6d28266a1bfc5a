"""Settings on trial: keys of the configuration that are in force for a while, and then no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["FOR_MAX_S", "SECTIONS", "Trial", "TrialRequest", "dotted"]

SECTIONS: Final = ("breaker", "costs", "governor", "merging", "routing", "slo")
"""What may be tried: how requests are treated; not who may ask, and not where they are sent."""
FOR_MAX_S: Final = 86_400.0
_DEPTH_MAX: Final = 8
_KEYS_MAX: Final = 200


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be tried, and for how long at most."""

    set: dict[str, Any]
    """Values by dotted key (`governor.policy`), or as tables; {} ends the trial."""
    for_s: float = 600.0
    """After so many seconds the gateway works by its own configuration again."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that were found to be such as may be tried, by dotted key."""

    settings: dict[str, Any]
    for_s: float

    def __post_init__(self) -> None:
        if not 0.0 < self.for_s <= FOR_MAX_S:
            raise ConfigError("for_s", self.for_s, f"seconds above 0, at most {FOR_MAX_S:.0f}")
        if len(self.settings) > _KEYS_MAX:
            raise ConfigError("set", len(self.settings), f"at most {_KEYS_MAX} keys")
        for key in self.settings:
            section, dot, name = key.partition(".")
            if section not in SECTIONS or not dot or not all(name.split(".")):
                expected = f"a key SECTION.NAME of {', '.join(SECTIONS)}"
                raise ConfigError("set", key, expected)


def dotted(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a tree of tables by dotted key. Raises ConfigError for one that is too deep."""
    found: dict[str, Any] = {}
    _collect(tree, "", found, 0)
    return found


def _collect(tree: Mapping[str, Any], prefix: str, found: dict[str, Any], depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise ConfigError("set", prefix, f"at most {_DEPTH_MAX} tables within each other")
    for name, value in tree.items():
        if isinstance(value, dict):
            _collect(value, f"{prefix}{name}.", found, depth + 1)
        else:
            found[f"{prefix}{name}"] = value
