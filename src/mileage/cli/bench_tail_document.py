"""What `mileage bench tail --json` prints: the tail's report, and what it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_tail_watch import Source
from mileage.measure.tail_report import TailReport

__all__ = ["tail_document", "tail_part"]


def tail_document(
    run: BenchRun, report: TailReport | None, sources: Sequence[Source]
) -> dict[str, Any]:
    """`tail` is null where no request ended well."""
    generator = run.load.generator
    return {
        "conditions": run.conditions,
        "started_at_utc": run.load.started_at_utc,
        "error": run.why_ended,
        "interrupted": run.interrupted,
        "generator": msgspec.to_builtins(generator),
        **tail_part(report, sources),
    }


def tail_part(report: TailReport | None, sources: Sequence[Source]) -> dict[str, Any]:
    """Of this document, and of that of a run with --tail."""
    return {
        "tail": None if report is None else msgspec.to_builtins(report),
        "sources": msgspec.to_builtins(list(sources)),
    }
