"""Metric families of what a worker writes down: the request log and the journal."""

from __future__ import annotations

from mileage.measure.metrics import Counter, Families, Gauge

__all__ = ["RecordMetrics"]


class RecordMetrics(Families):
    """What was written, and what could not be."""

    def __init__(self) -> None:
        self.ledger_records = Counter(
            "mileage_ledger_records_total", "Records written to the request log."
        )
        self.ledger_dropped = Counter(
            "mileage_ledger_dropped_records_total",
            "Records that the request log could not take.",
        )
        self.journal_records = Counter(
            "mileage_journal_records_total", "Events recorded in the journal."
        )
        self.journal_dropped = Counter(
            "mileage_journal_dropped_records_total", "Events that the journal could not take."
        )
        self.journal_stopped = Gauge(
            "mileage_journal_stopped", "Workers whose journal cannot be written: 1 each."
        )
