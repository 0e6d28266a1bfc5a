"""GPUs by the name that their driver gives them: their entry in the catalogue."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import GPUS, gpu
from mileage.costmodel.gpu import Gpu

__all__ = ["gpu_of_driver", "link_maxima"]

_GB: Final = 1e9
_NOISE: Final = frozenset(
    {"nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "hbm2", "hbm3", "hbm2e", "hbm3e"}
)
_SIZE = re.compile(r"(\d+)\s?gi?b?\b", re.ASCII)
"""`40G` and `80 GB` are `40gb` and `80gb`."""
_WORD = re.compile(r"[a-z]+\d[\w]*|\d+gb|[a-z]+|\d+", re.ASCII)


@lru_cache(maxsize=256)
def gpu_of_driver(name: str, *, memory_total_bytes: int | None = None) -> Gpu | None:
    """The catalogue's GPU that the driver calls so: `NVIDIA H100 80GB HBM3`, `Tesla T4`.

    Its words must all be in the catalogue's name or be said by the memory's size, which also tells
    variants apart. None where no entry, or more than one, fits: no guess is made.
    """
    words = _words(name)
    if not words:
        return None
    try:
        return gpu(" ".join(sorted(words, key=_SIZE.sub(r"\1gb", name.lower()).find)))
    except ConfigError:
        pass
    fits = [each for each in GPUS if _fits(words, each)]
    if len(fits) > 1 and memory_total_bytes:
        fits = [each for each in fits if _has_about(each, memory_total_bytes)]
    if len(fits) > 1:
        plain = [each for each in fits if _families(_words(each.name)) == _families(words)]
        fits = plain or fits
    return fits[0] if len(fits) == 1 else None


def link_maxima(found: Gpu | None) -> tuple[float | None, float | None]:
    """Bytes per second in one direction of NVLink, 0 where it has none, and of PCIe."""
    if found is None:
        return None, None
    nvlink = 0.0 if found.nvlink_gb_per_s is None else found.nvlink_gb_per_s * _GB / 2
    return nvlink, found.pcie_gb_per_s * _GB


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_SIZE.sub(r"\1gb", name.lower()))) - _NOISE


def _families(words: frozenset[str]) -> frozenset[str]:
    """Without sizes and forms: what tells one chip from another."""
    return frozenset(word for word in words if not re.fullmatch(r"\d+gb|sxm\d?|pcie", word))


def _fits(words: frozenset[str], entry: Gpu) -> bool:
    known = _words(entry.name)
    if not _families(words) or _families(words) - known:
        return False
    sizes = {w for w in words if re.fullmatch(r"\d+gb", w)}
    forms = {w.rstrip("0123456789") for w in words if re.fullmatch(r"sxm\d?|pcie", w)}
    known_forms = {w.rstrip("0123456789") for w in known if re.fullmatch(r"sxm\d?|pcie", w)}
    return sizes <= known and (not forms or forms <= known_forms)


def _has_about(entry: Gpu, memory_bytes: int) -> bool:
    return abs(entry.memory_bytes / memory_bytes - 1) < 0.1
