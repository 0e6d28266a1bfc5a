"""Where `mileage cost` has its rows from: the ledger's roll-ups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mileage.cli.config import Config
from mileage.cli.ledger_place import ledger_place
from mileage.core.timeline import RequestTimeline
from mileage.ledger.bill_requests import RequestUse
from mileage.storage.usage_reader import AttributedRequest, UsageReader

__all__ = ["request_use", "usage_source"]

_NS: Final = 1_000_000_000


@contextmanager
def usage_source(config: Config, ledger: Path | None) -> Iterator[UsageReader]:
    """The ledger of the configuration, or of the directory; closed at the end.

    ConfigError where there is none, LedgerError where it cannot be read.
    """
    reader = UsageReader(ledger_place(config.ledger, ledger), config.attribution)
    try:
        yield reader
    finally:
        reader.close()


def request_use(found: AttributedRequest) -> RequestUse:
    """A request of the ledger as the bill takes it."""
    request = found.request
    began_ns, ended_ns = _ran(request)
    own = request.merged_into is None  # else another request has the tokens on record
    output_tokens = request.output_tokens
    if output_tokens is None:
        output_tokens = request.output_tokens_counted
    return RequestUse(
        id=request.id,
        replica=request.replica or "",
        tenant=request.tenant,
        model=request.model,
        adapter=request.adapter or "",
        key=request.key or "",
        labels=request.labels or "",
        arrived_at_utc_ns=request.arrived_at_utc_ns,
        began_at_utc_ns=began_ns,
        ended_at_utc_ns=ended_ns,
        ok=request.outcome == "ok",
        prompt_tokens=(request.prompt_tokens or 0) if own else 0,
        cached_tokens=(request.cached_tokens or 0) if own else 0,
        output_tokens=(output_tokens or 0) if own else 0,
        gpu_ns=found.gpu_ns or 0,
        low_ns=found.low_ns or 0,
        high_ns=found.high_ns or 0,
        prefill_ns=found.prefill_ns or 0,
        recomputed_ns=found.recomputed_ns or 0,
    )


def _ran(request: RequestTimeline) -> tuple[int, int]:
    """When its replica had it, nanoseconds since 1970."""
    arrived_ns, finished_s = request.arrived_at_utc_ns, request.finished_s
    began_ns = arrived_ns + round((request.dispatched_s or 0.0) * _NS)
    if finished_s is None:
        finished_s = request.last_token_s
    if request.dispatched_s is None or finished_s is None:
        return began_ns, began_ns
    return began_ns, max(began_ns, arrived_ns + round(finished_s * _NS))
