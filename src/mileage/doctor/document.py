"""A diagnosis straight from a facts document, with what its log lines tell put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.doctor.collect.startup_log import log_facts
from mileage.doctor.facts import decode_facts
from mileage.doctor.finding import Diagnosis
from mileage.doctor.money import GpuPriceStated
from mileage.doctor.run import diagnose

__all__ = ["diagnose_document", "with_logs_read"]


def with_logs_read(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document, and below what it states what its log lines say."""
    lines = document.get("logs")
    if not lines:
        return dict(document)
    told = {name: part for name, part in log_facts(lines).items() if name != "logs"}
    stated = SourcedFacts(source="document", standing="measured", document=dict(document))
    logs = SourcedFacts(source="logs", standing="reported", document=told)
    return merge_facts([stated, logs]).document


def diagnose_document(
    document: object,
    *,
    price: GpuPriceStated | None = None,
    url: str | None = None,
    place: str | None = None,
    simulate: bool = False,
) -> Diagnosis:
    """As `diagnose`, from a document as it was read from JSON.

    Raises:
        ConfigError: it is not a facts document; `place` is where it was read.
    """
    decode_facts(document, place=place)  # its author's names, before ours come in
    assert isinstance(document, Mapping)
    facts = decode_facts(with_logs_read(document))
    return diagnose(facts, price=price, url=url, simulate=simulate)
