"""LedgerSpends: what the ledger knows that tenants spent, once it knows all that was logged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mileage.control.accounts import split_account
from mileage.core.errors import LedgerError
from mileage.gateway.budget_desk import SpendQuery
from mileage.storage.feeder import Feeder
from mileage.storage.queries import LedgerReader

__all__ = ["LedgerSpends"]

_NS: Final = 1_000_000_000
_POLL_S: Final = 0.05


class LedgerSpends:
    """Answers a budget desk's questions; in another thread, so that nothing waits for the disk.

    `identity`: this gateway's in a database that several share. Then it is asked for what came
    through this one; the others tell of theirs.
    """

    def __init__(
        self,
        place: Path | str,
        feeder: Feeder,
        *,
        identity: str | None = None,
        wait_s: float = 10.0,
    ) -> None:
        self._place, self._feeder, self._wait_s = place, feeder, wait_s
        self._identity = identity

    async def read(self, queries: Sequence[SpendQuery]) -> list[int]:
        """One sum for each; raises LedgerError where the log is not in the database in time."""
        await self._caught_up()
        return await asyncio.to_thread(self._sums, queries)

    async def _caught_up(self) -> None:
        """Wait for a pass of the feeder that began after now, and found nothing left to do."""
        passes = self._feeder.status().passes_total + 2
        deadline_s = time.monotonic() + self._wait_s
        while (status := self._feeder.status()).passes_total < passes:
            if time.monotonic() > deadline_s or not status.running:
                why = f": {status.error}" if status.error else ""
                raise LedgerError("ledger", f"the database is behind the log{why}")
            await asyncio.sleep(_POLL_S)

    def _sums(self, queries: Sequence[SpendQuery]) -> list[int]:
        reader = LedgerReader(self._place)
        try:
            if self._identity is None:
                return [_sum(reader, query) for query in queries]
            known = reader.gateway(self._identity)
            if known is None:
                return [0] * len(queries)  # it has not stored anything yet
            number, since_ns = known
            return [_sum(reader, query, since_ns, number) for query in queries]
        finally:
            reader.close()


def _sum(
    reader: LedgerReader, query: SpendQuery, since_ns: int = 0, gateway: int | None = None
) -> int:
    tenant, unit, _ = split_account(query.account)
    spent = reader.spent(
        tenant,
        since_utc_ns=max(since_ns, int(query.since_utc_s * _NS)),
        before_utc_ns=int(query.before_utc_s * _NS),
        worker=query.worker,
        gateway=gateway,
    )
    if unit == "tokens":
        return spent.tokens
    return spent.gpu_ns if unit == "gpu_s" else spent.cost_nano_usd
