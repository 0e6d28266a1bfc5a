"""All tests of claims, by key.

A row that a feature makes testable gets its `run` in one place: the module of its kind.
"""

from __future__ import annotations

from typing import Final

from benchmarks.support import (
    claim_engine_rows,
    claim_fleet_rows,
    claim_memory_rows,
    claim_waiting_rows,
)
from benchmarks.support.claim_row import RowTest

__all__ = ["TESTS"]

TESTS: Final[dict[str, RowTest]] = {
    test.key: test
    for test in (
        *claim_engine_rows.ROWS,
        *claim_fleet_rows.ROWS,
        *claim_memory_rows.ROWS,
        *claim_waiting_rows.ROWS,
    )
}
