"""Outcomes: what became of each request of a simulation, in columns."""

from __future__ import annotations

import math
from array import array
from typing import Final

__all__ = ["CANCELLED", "FAILED", "OK", "REJECTED", "Outcomes"]

OK: Final = 0
REJECTED: Final = 1
FAILED: Final = 2
CANCELLED: Final = 3
"""Its client left before the answer was complete."""


class Outcomes:
    """One row per request, in the order of arrival; 60 bytes each. What was not is NaN.

    Times are in seconds: `arrived_s` since the start of the trace, `ttft_s` and `e2e_s` since the
    arrival; `itl_p99_s` and `itl_mean_s` are of the request's own gaps (NaN below two tokens).
    """

    __slots__ = (
        "arrived_s",
        "cached_tokens",
        "e2e_s",
        "itl_mean_s",
        "itl_p99_s",
        "joined",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "replica",
        "status",
        "ttft_s",
    )

    def __init__(self) -> None:
        self.arrived_s = array("d")
        self.ttft_s = array("d")
        self.itl_p99_s = array("d")
        self.itl_mean_s = array("d")
        self.e2e_s = array("d")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.cached_tokens = array("q")
        self.preemptions = array("i")
        self.replica = array("i")
        """Index of the replica; -1: none."""
        self.status = array("b")
        """OK, REJECTED, FAILED or CANCELLED."""
        self.joined = array("b")
        """1: it shared the generation of another request, whose row has what it cost."""

    def __len__(self) -> int:
        return len(self.status)

    def open(self, arrived_s: float, prompt_tokens: int) -> int:
        """A row for a request that has come; its index. Until it is closed it has failed."""
        row = len(self.status)
        self.arrived_s.append(arrived_s)
        self.ttft_s.append(math.nan)
        self.itl_p99_s.append(math.nan)
        self.itl_mean_s.append(math.nan)
        self.e2e_s.append(math.nan)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(0)
        self.cached_tokens.append(0)
        self.preemptions.append(0)
        self.replica.append(-1)
        self.status.append(FAILED)
        self.joined.append(0)
        return row
