"""How fragmented the host's free memory is, from /proc/buddyinfo."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

__all__ = ["memory_fragmentation_ratio"]

_HUGE_BYTES: Final = 2 * 1024 * 1024


def memory_fragmentation_ratio(
    path: Path = Path("/proc/buddyinfo"), *, page_bytes: int = mmap.PAGESIZE
) -> float | None:
    """Share of the free memory, 0..1, in pieces that are too small for a huge page of 2 MiB.

    Weights that are mapped and caches that are pinned want such pages. None where the kernel does
    not tell, or nothing is free. Lines are `Node 0, zone Normal  N0 N1 ...`: free blocks of 2^i
    pages.

    Source: M. Gorman, A. Whitcroft, "The What, The Why and the Where To of Anti-Fragmentation",
    Ottawa Linux Symposium 2006: unusable free space index.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    free = usable = 0
    for line in lines:
        fields = line.split()
        if len(fields) < 5 or fields[0] != "Node" or not all(map(str.isdigit, fields[4:])):
            return None
        for order, count in enumerate(map(int, fields[4:])):
            block_bytes = page_bytes << order
            free += count * block_bytes
            usable += count * block_bytes if block_bytes >= _HUGE_BYTES else 0
    return 1.0 - usable / free if free else None
