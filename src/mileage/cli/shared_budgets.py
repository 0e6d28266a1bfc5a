"""SharedBudgets: asks the pool of all gateways' budgets, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from mileage.control.budget_pool import PartGrant, PartReport
from mileage.storage.postgres_budgets import PostgresBudgets

__all__ = ["SharedBudgets"]


class SharedBudgets:
    """One exchange at a time, also after one that was given up still waits for the database."""

    def __init__(self, address: str, identity: str) -> None:
        self._pool = PostgresBudgets(address, identity=identity)
        self._thread = ThreadPoolExecutor(1, "budgets")

    async def exchange(self, reports: Sequence[PartReport]) -> list[PartGrant]:
        """See PostgresBudgets; raises LedgerError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._pool.exchange, reports)

    def close(self) -> None:
        """Once what is asked is answered, close the connection."""
        self._thread.submit(self._pool.close)
        self._thread.shutdown(wait=False)
