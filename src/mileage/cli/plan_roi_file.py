"""RoiFile: what `mileage plan roi` works out, of a file and of options over it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.keyed_file import read_keyed
from mileage.core.errors import ConfigError
from mileage.planner.roi import Business, Serving

__all__ = ["OPTIONS", "RoiFile", "read_roi", "serving_flags"]

OPTIONS: Final = {
    "business.requests_per_month": "--requests-per-month",
    "business.growth_ratio_per_month": "--growth",
    "business.one_time_usd": "--one-time",
    "business.review_usd": "--review",
    "business.error_usd": "--error",
}
"""What sets a key of [business] on the command line."""
_PAGE: Final = "docs/how-to/when-does-it-pay.md"
_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "business": Business,
    "baseline": Serving,
    "candidate": Serving,
}


class RoiFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Today's way to serve, the one that is thought of, and what is the same for both."""

    business: Business
    baseline: Serving
    candidate: Serving
    start: dt.date | None = None
    """Day of the change. None: today."""


def read_roi(path: Path | None, flags: Mapping[str, Any]) -> tuple[Document, RoiFile]:
    """The file, if there is one, with the flags by dotted key over it.

    Raises ConfigError with the line, or the option, of what is wrong.
    """
    try:
        return read_keyed(path, flags, RoiFile, name="FILE", tables=_TABLES, page=_PAGE)
    except ConfigError as error:
        raise _by_option(error, path) from None


def serving_flags(role: str, text: str | None) -> dict[str, Any]:
    """`NAME KEY=VALUE ...` of `--baseline` or `--candidate` as flags. Raises ConfigError."""
    if text is None:
        return {}
    name, *parts = text.split() or [""]
    expected = "NAME KEY=VALUE ..., such as 'api usd_per_request=0.004 accuracy_ratio=0.93'"
    if not name or "=" in name:
        raise ConfigError(f"--{role}", text, expected)
    flags: dict[str, Any] = {f"{role}.name": name}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--{role}", part, expected)
        try:
            flags[f"{role}.{key}"] = float(value)
        except ValueError:
            raise ConfigError(f"--{role}", part, f"a number as {key}") from None
    return flags


def _by_option(error: ConfigError, path: Path | None) -> ConfigError:
    """Without a file, by the option that tells what is wrong or missing."""
    if path is not None:
        return error
    table, _, key = error.key.partition(".")
    if not key:  # the table itself is missing
        option = f"--{table}" if table in _TABLES else error.key
        option = "--requests-per-month" if table == "business" else option
        expected = "a value, or a FILE with the tables [business], [baseline] and [candidate]"
        return ConfigError(option, None, expected)
    if table == "business":
        return ConfigError(OPTIONS.get(error.key, error.key), error.value, error.expected)
    return error.named(f"--{table} {key}")
