"""file_room(): how many connections the system's limit on open files leaves."""

from __future__ import annotations

import resource

__all__ = ["file_room"]

_RESERVED = 128
"""For what the process has open already, name look-ups, samplers and reports."""


def file_room() -> int:
    """Raises the soft limit to the hard one; gives what is left for connections, at least 1."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return 2**31
    return max(1, hard - _RESERVED)
