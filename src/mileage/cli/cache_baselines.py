"""Caches of libcachesim on a trace's blocks: well-known policies that know of no prefixes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from mileage.core.errors import ConfigError
from mileage.sim.cache_trace import CacheTrace

__all__ = ["BASELINES", "baseline_hits"]

_PREFIX: Final = "libcachesim-"
_CLASSES: Final = {
    "arc": "ARC",
    "clock": "Clock",
    "lecar": "LeCaR",
    "lfu": "LFU",
    "lhd": "LHD",
    "lru": "LRU",
    "s3fifo": "S3FIFO",
    "sieve": "Sieve",
    "wtinylfu": "WTinyLFU",
}
BASELINES: Final = tuple(_PREFIX + name for name in _CLASSES)
_TICK_REQUESTS: Final = 256


def baseline_hits(
    trace: CacheTrace,
    policy: str,
    *,
    blocks_max: int,
    tick: Callable[[int], None] | None = None,
) -> int:
    """Hits of one of `BASELINES` with so many blocks, each block being an object by itself.

    A block hits where it is stored, with or without its ancestors, which no engine could use: the
    figure flatters the baseline. Raises ConfigError where libcachesim is not installed.
    """
    try:
        library: Any = importlib.import_module("libcachesim")
    except ImportError:
        raise ConfigError(
            "--policy", policy, "the package libcachesim to be installed (pip install libcachesim)"
        ) from None
    cache = getattr(library, _CLASSES[policy.removeprefix(_PREFIX)])(cache_size=blocks_max)
    request = library.Request()
    request.obj_size = 1
    get = cache.get
    hits = 0
    for number, chain in enumerate(trace.chains):
        for block in chain:
            request.obj_id = block
            hits += get(request)
        if tick is not None and number % _TICK_REQUESTS == 0:
            tick(number)
    return hits
