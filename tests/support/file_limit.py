"""A bound on the size of files, as the kernel enforces it: short writes, then errors."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["file_size_limit"]


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """While it is active no file of this process can grow beyond `size_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
