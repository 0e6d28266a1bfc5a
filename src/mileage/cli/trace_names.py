"""Names that are no trace: what is said of them, with the names that are near."""

from __future__ import annotations

import difflib
from itertools import islice
from pathlib import Path
from typing import Final

from mileage.cli.trace_catalogue import CATALOGUE
from mileage.core.errors import ConfigError

__all__ = ["near_data_sets", "no_trace"]

_FILES_MAX: Final = 1000
_CUTOFF: Final = 0.6


def no_trace(spec: str, key: str) -> ConfigError:
    """The error, of `key`, for a trace that is neither a file nor a fetched data set."""
    if spec in CATALOGUE:
        return ConfigError(key, spec, f"it to be there: `mileage trace fetch {spec}` brings it")
    near = _near(spec)
    hint = f"; near: {', '.join(near)}" if near else ""
    expected = f"a file, a directory, `-`, synthetic:rate=..., or a data set by its name{hint}"
    return ConfigError(key, spec, expected)


def near_data_sets(name: str) -> list[str]:
    """Names of the catalogue that are much like it, the nearest first."""
    return difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=_CUTOFF)


def _near(spec: str) -> list[str]:
    path = Path(spec)
    try:
        beside = [entry.name for entry in islice(path.parent.iterdir(), _FILES_MAX)]
    except (OSError, ValueError):
        beside = []
    files = difflib.get_close_matches(path.name, beside, n=3, cutoff=_CUTOFF)
    return (near_data_sets(spec) + [str(path.with_name(name)) for name in files])[:4]
