"""What was read of one engine, as facts with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mileage.doctor.collect.engine_answers import answer_facts, triton_models
from mileage.doctor.collect.engine_metrics import engine_metrics_facts
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.facts_document import FactsDocument
from mileage.doctor.collect.merge_facts import SourcedFacts
from mileage.doctor.collect.page_window import PageAt, PageWindow
from mileage.doctor.collect.triton_config import triton_config_facts, triton_parts
from mileage.doctor.collect.triton_stats import triton_stats_page
from mileage.doctor.collect.trtllm_iterations import iteration_facts
from mileage.measure.exposition import parse
from mileage.measure.iteration_records import iteration_records
from mileage.measure.metrics_page import Page

__all__ = ["engine_facts"]

_STATS: Final = "/v2/models/stats"
_SAMPLES_MAX: Final = 50_000
_PAGES_MAX: Final = 300
"""Of a longer watch every so many pages are read, the first and the last among them."""


def engine_facts(record: EngineRecord) -> tuple[SourcedFacts, ...]:
    """Facts by source, those that were measured first. Never raises: what cannot be read tells
    nothing."""
    models = triton_models(record.answers)
    roles = triton_parts(models) if models else None
    pages: list[PageAt] = []
    stats: list[PageAt] = []
    iterations: list[Any] = []
    for recorded in _spaced(record.pages):
        body = recorded.text.encode()
        if recorded.path == _STATS:
            page = triton_stats_page(body)
            if page is not None:
                stats.append(_at(recorded, page))
        elif (records := iteration_records(body)) is not None:
            iterations += records
        else:
            exposition = parse(body, samples_max=_SAMPLES_MAX)
            if not exposition.truncated:
                pages.append(_at(recorded, Page(exposition)))
    found = [
        ("metrics", engine_metrics_facts(PageWindow(pages), roles)),
        ("iteration statistics", _named("tensorrt-llm", iteration_facts(iterations))),
        ("model statistics", engine_metrics_facts(PageWindow(stats), roles)),
    ]
    sources = [
        SourcedFacts(source=f"{name} of {record.url}", standing="measured", document=document)
        for name, document in found
        if document
    ]
    reported = {path: answer_facts(path, body) for path, body in record.answers.items()}
    reported["/v2/models/*/config"] = triton_config_facts(models)
    for path, document in reported.items():
        if document:
            source = f"{record.url}{path}"
            sources.append(SourcedFacts(source=source, standing="reported", document=document))
    return tuple(sources)


def _spaced(pages: Sequence[RecordedPage]) -> Sequence[RecordedPage]:
    """At most so many of them, evenly spaced. But of records of iterations each is told once."""
    if len(pages) <= _PAGES_MAX or pages[0].text[:1] in ("[", "{"):
        return pages
    last = len(pages) - 1
    return [pages[round(index * last / (_PAGES_MAX - 1))] for index in range(_PAGES_MAX)]


def _at(recorded: RecordedPage, page: Page) -> PageAt:
    return PageAt(recorded.at_s, page, recorded.at_utc_s)


def _named(engine: str, document: FactsDocument) -> FactsDocument:
    return {"engine": {"name": engine}, **document} if document else {}
