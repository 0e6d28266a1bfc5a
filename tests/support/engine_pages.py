"""Metrics pages as facts: windows of pages in Prometheus' text format, checked by the decoder."""

from __future__ import annotations

from typing import Any

from mileage.doctor.collect.engine_metrics import engine_metrics_facts
from mileage.doctor.collect.page_window import PageAt, PageWindow
from mileage.doctor.facts import decode_facts
from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page

__all__ = ["checked", "facts_of", "window_of"]


def window_of(
    *texts: str | bytes, step_s: float = 10.0, first_utc_s: float | None = None
) -> PageWindow:
    """One page after another, `step_s` apart."""
    return PageWindow(
        PageAt(
            100.0 + index * step_s,
            Page(parse(text.encode() if isinstance(text, str) else text)),
            None if first_utc_s is None else first_utc_s + index * step_s,
        )
        for index, text in enumerate(texts)
    )


def facts_of(
    *texts: str | bytes, step_s: float = 10.0, first_utc_s: float | None = None
) -> dict[str, Any]:
    """The facts document of such a window."""
    return checked(engine_metrics_facts(window_of(*texts, step_s=step_s, first_utc_s=first_utc_s)))


def checked(document: dict[str, Any]) -> dict[str, Any]:
    """The document, every name and value of which the decoder takes."""
    decode_facts(document)
    return document
