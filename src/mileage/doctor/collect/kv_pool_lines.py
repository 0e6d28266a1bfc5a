"""The size of the KV pool, as engines write it into their logs when they start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from mileage.doctor.collect.facts_document import per_unit
from mileage.doctor.collect.log_line import LogLine
from mileage.doctor.collect.setting_values import as_count, as_number

__all__ = ["KvPoolLines"]

_TOKENS: Final = (
    re.compile(r"\bKV cache size: ([\d,]+) tokens"),
    re.compile(r"KV Cache is allocated\..*?#tokens: (\d+)"),
    re.compile(r"\bmax_total_num_tokens=(\d+)"),
    re.compile(r"max tokens in paged KV cache \((\d+)\)"),
    re.compile(r"Max tokens in paged KV cache: (\d+)"),
    re.compile(r"llama_kv_cache\w*: size =.*?\(\s*(\d+) cells"),
)
_GIB: Final = (
    re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    re.compile(r"\bkv_cache_size=([\d.]+) ?GiB"),
    re.compile(r"reserved for KV Cache is ([\d.]+) ?GiB"),
    re.compile(r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"),
)
_HALVES: Final = re.compile(r"K size: ([\d.]+) GB, V size: ([\d.]+) GB")
_MIB: Final = re.compile(r"llama_kv_cache\w*: size =\s*([\d.]+) MiB")
_BLOCKS: Final = re.compile(r"# (?:GPU|CUDA|cuda) blocks: (\d+)")
_CONCURRENCY: Final = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_BLOCK_SIZES: Final = (16, 8, 32, 64, 128, 1)
_ROUNDED: Final = 0.006
"""vLLM writes the concurrency with two digits."""

Size = TypeVar("Size")


class KvPoolLines:
    """Collects sizes, by data-parallel rank; the newest line of each counts."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._gib: dict[str, float] = {}
        self._concurrency: dict[str, tuple[int, float]] = {}
        self._blocks: int | None = None

    def take(self, line: LogLine) -> bool:
        """Read a line; False where it tells no size."""
        text, rank = line.text, line.rank
        found = False
        for pattern in _TOKENS:
            if (match := pattern.search(text)) is not None and (tokens := as_count(match[1])):
                self._tokens[rank] = tokens
                found = True
        for pattern in _GIB:
            if (match := pattern.search(text)) is not None:
                found |= self._put_gib(rank, as_number(match[1].rstrip(".")))
        if (halves := _HALVES.search(text)) is not None:
            parts = [as_number(half) for half in halves.groups()]
            found |= self._put_gib(rank, sum(part for part in parts if part is not None))
        if (mib := _MIB.search(text)) is not None:
            size = as_number(mib[1])
            found |= self._put_gib(rank, None if size is None else size / 1024)
        if (blocks := _BLOCKS.search(text)) is not None:
            self._blocks = as_count(blocks[1])
            found = True
        if (match := _CONCURRENCY.search(text)) is not None:
            length, times = as_count(match[1]), as_number(match[2])
            if length and times is not None:
                self._concurrency[rank] = length, times
                found = True
        return found

    def signals(self, block_size: int | None) -> dict[str, Any]:
        """Sizes by rank. V0 tells blocks: their size is the setting, else the one with which as
        many full-length requests fit as it says."""
        signals: dict[str, Any] = {
            "kv_cache_capacity_tokens": per_unit(_in_order(self._tokens)),
            "kv_cache_capacity_gib": per_unit(_in_order(self._gib)),
            "kv_max_concurrency": per_unit([times for _, times in _in_order(self._concurrency)]),
        }
        if not self._tokens and self._blocks:
            size = block_size or self._block_size(self._blocks)
            if size is not None:
                signals["kv_cache_capacity_tokens"] = self._blocks * size
        return signals

    def _put_gib(self, rank: str, size: float | None) -> bool:
        if size is None or size <= 0:
            return False
        self._gib[rank] = size
        return True

    def _block_size(self, blocks: int) -> int | None:
        for length, times in self._concurrency.values():
            for size in _BLOCK_SIZES:
                if abs(blocks * size / length - times) <= _ROUNDED:
                    return size
        return None


def _in_order(found: Mapping[str, Size]) -> list[Size]:
    """Values by rank."""
    return [found[rank] for rank in sorted(found, key=lambda rank: (len(rank), rank))]
