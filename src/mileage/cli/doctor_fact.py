"""`--fact KEY=VALUE`: a fact that somebody knows and no page tells."""

from __future__ import annotations

from typing import Any

import msgspec

from mileage.core.errors import ConfigError
from mileage.doctor.facts import decode_facts
from mileage.doctor.near_names import near_keys
from mileage.doctor.vocabulary import KEYS, SECTIONS

__all__ = ["stated_facts"]

_KEY = "--fact"


def stated_facts(options: list[str]) -> dict[str, Any]:
    """The options as a facts document.

    A key is a name of settings, workload or signals, or has its section before it:
    `concurrency=256`, `model.params_b=70`, `settings.max_num_seqs={"min": 64}`. A value is JSON,
    or else a text. Raises ConfigError, which names the option.
    """
    document: dict[str, Any] = {}
    for option in options:
        key, equals, written = option.partition("=")
        if not equals or not key:
            raise ConfigError(_KEY, option, "KEY=VALUE, such as concurrency=256")
        section, name = _place(key.strip())
        value: Any
        try:
            value = msgspec.json.decode(written)
        except msgspec.DecodeError:
            value = written
        if SECTIONS[section][name].form in ("text", "choice") and value is not None:
            value = written.strip('"')
        document.setdefault(section, {})[name] = value
        try:
            decode_facts({section: {name: value}})
        except ConfigError as error:
            raise ConfigError(f"{_KEY} {key}", written, error.expected) from None
    return document


def _place(key: str) -> tuple[str, str]:
    section, _, rest = key.partition(".")
    if section in SECTIONS and rest in SECTIONS[section]:
        return section, rest
    if key in KEYS:
        return KEYS[key]
    near = near_keys(key, section if section in SECTIONS else None)
    hint = f"is it {' or '.join(near)}?" if near else "docs/reference/facts.md"
    raise ConfigError(_KEY, key, f"a name of the vocabulary ({hint})")
