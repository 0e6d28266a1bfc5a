"""An engine's own means of a run, beside those that the load generator saw."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from mileage.measure.call_record import CallRecord
from mileage.scrape.engine_check import MeanCheck, check_means
from mileage.scrape.engine_means import EngineFigure, EngineTotals, means_between, totals_of
from mileage.wire.fetch import Fetch, FetchError, fetch

__all__ = ["engine_totals", "own_means"]

_PAGE_TIMEOUT_S: Final = 5.0
_PAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_SETTLE_S: Final = 1.5
"""A page may be behind its engine by a second or so: Mileage's workers report once a second."""


async def engine_totals(url: str | None, ask: Fetch = fetch) -> EngineTotals | None:
    """What the engine's page says of all that it did until now; None without one."""
    totals = await _look(url, ask)
    if totals is None or not any(map(_is_ours, totals.families.values())):
        return totals
    await asyncio.sleep(_SETTLE_S)  # what prompts were measured with may not be on it yet
    return await _look(url, ask)


def _is_ours(family: str) -> bool:
    return family.startswith("mileage_")


async def _look(url: str | None, ask: Fetch) -> EngineTotals | None:
    if url is None:
        return None
    try:
        answer = await ask(url, timeout_s=_PAGE_TIMEOUT_S, body_bytes_max=_PAGE_BYTES_MAX)
    except FetchError:
        return None
    return totals_of(answer.body) if answer.status == 200 else None


async def own_means(
    before: EngineTotals | None, records: Sequence[CallRecord], url: str | None
) -> dict[EngineFigure, MeanCheck]:
    """The means of the whole run, the warm-up in it; none where the engine tells none."""
    if before is None:
        return {}
    await asyncio.sleep(_SETTLE_S)
    after = await _look(url, fetch)
    return {} if after is None else check_means(means_between(before, after), records)
