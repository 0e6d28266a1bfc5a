"""How tests ask servers of this machine by httpx: httpx.get(url, **LOCAL)."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["LOCAL"]

LOCAL: Final[dict[str, Any]] = {"verify": False, "timeout": 60.0}
"""No certificates, which take longer to load than the answer to come, and time for a machine that
is busy: httpx's own 5 s are not enough for one."""
