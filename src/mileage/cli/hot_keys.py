"""Which keys of the configuration are hot: changed while the gateway runs; the others at a start.

A key's path is (section, key); of what has names of its own (tenants, models, engines) it is
(section, name, key...).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mileage.cli.config import Config

__all__ = ["COLD", "HOT", "Change", "Plan", "changes", "is_hot", "plan"]

_ALL = ("*",)

HOT: dict[str, tuple[str, ...]] = {
    "adapters": _ALL,
    "aliases": _ALL,
    "billing": _ALL,
    "bottleneck": _ALL,
    "breaker": _ALL,
    "costs": _ALL,
    "engines": _ALL,
    "experiment": _ALL,
    "governor": _ALL,
    "idle": _ALL,
    "ledger": ("budget_lease_ratio", "on_failure", "retention_days"),
    "loads": _ALL,
    "lora": _ALL,
    "merging": _ALL,
    "routing": _ALL,
    "server": (
        "allow_no_keys",
        "allowed_hosts",
        "body_bytes_max",
        "body_timeout_s",
        "buffer_bytes_max",
        "cache_salt",
        "cache_salt_key_file",
        "connections_max",
        "cors_origins",
        "drain_timeout_s",
        "header_bytes_max",
        "header_timeout_s",
        "headers_max",
        "idle_timeout_s",
        "pipeline_max",
        "watch_config",
        "write_timeout_s",
    ),
    "slo": _ALL,
    "telemetry": _ALL,
    "tenants": _ALL,
}
"""By section: the keys that a reload changes."""

COLD: dict[str, tuple[str, ...]] = {
    "admin": _ALL,
    "attribution": _ALL,
    "embedded": _ALL,
    "journal": _ALL,
    "ledger": ("database", "directory", "enabled", "segment_bytes_max", "token_times"),
    "models": _ALL,
    "server": ("host", "port", "tls_cert", "tls_key", "workers"),
    "tokenizer": _ALL,
    "warm_up": _ALL,
}
"""By section: the keys that a start reads, and nothing after it."""

Change: TypeAlias = tuple[str, ...]


class Plan(NamedTuple):
    """What a reload does: the configuration to go on with, and the keys in which it differs.

    `changed` are all keys in which what is written differs from what runs; those in
    `restart_needed` keep the value that runs.
    """

    config: Config
    changed: list[str]
    restart_needed: list[str]


def is_hot(section: str, key: str) -> bool:
    """Whether a reload changes the key."""
    keys = HOT.get(section, ())
    return keys == _ALL or key in keys


def plan(running: Config, written: Config) -> Plan:
    """How to get from what runs to what is written, as far as that goes without a restart.

    Raises ConfigError where what is hot does not fit with the old values of what is not.
    """
    # Without engines our own serves, which is started and ended with the gateway.
    others = running.models
    own_engine = bool(running.engines or others) != bool(written.engines or others)
    stay = ("models", "engines") if own_engine else ("models",)
    sections: dict[str, Any] = {}
    for field in msgspec.structs.fields(Config):
        section = field.name
        old, new = getattr(running, section), getattr(written, section)
        if isinstance(new, msgspec.Struct):
            kept = {
                key: getattr(old, key) for key in new.__struct_fields__ if not is_hot(section, key)
            }
            sections[section] = msgspec.structs.replace(new, **kept) if kept else new
        else:
            sections[section] = old if section in stay else new
    found = list(changes(running, written))
    cold = [
        change for change in found if change[0] in stay or not is_hot(change[0], (*change, "*")[1])
    ]
    return Plan(
        Config(**sections), [".".join(c) for c in found], [".".join(change) for change in cold]
    )


def changes(old: Config, new: Config) -> Iterator[Change]:
    """The keys in which the two differ, in the order of the sections.

    What was added or removed as a whole is told by its name alone.
    """
    for field in msgspec.structs.fields(Config):
        yield from _changes((field.name,), getattr(old, field.name), getattr(new, field.name))


def _changes(path: Change, old: Any, new: Any) -> Iterator[Change]:
    if old == new:
        return
    below: list[tuple[str, Any, Any]]
    if isinstance(old, msgspec.Struct) and isinstance(new, msgspec.Struct):
        below = [(key, getattr(old, key), getattr(new, key)) for key in new.__struct_fields__]
    elif isinstance(old, dict) and isinstance(new, dict):
        below = [(key, old.get(key), new.get(key)) for key in {**old, **new}]
    elif path == ("engines",):
        by_name = [{engine.replica: engine for engine in engines} for engines in (old, new)]
        below = [(n, by_name[0].get(n), by_name[1].get(n)) for n in {**by_name[0], **by_name[1]}]
        if by_name[0] == by_name[1]:  # only their order differs
            yield path
    else:
        yield path
        return
    for key, old_value, new_value in below:
        yield from _changes((*path, key), old_value, new_value)
