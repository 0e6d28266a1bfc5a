"""What the doctor says of a facts document, in one word."""

from __future__ import annotations

from typing import Any

from mileage.doctor.document import diagnose_document

__all__ = ["first_cause", "loud_causes"]


def loud_causes(facts: dict[str, Any]) -> list[str]:
    """Causes of findings above info, primary first."""
    return [
        finding.cause for finding in diagnose_document(facts).findings if finding.severity != "info"
    ]


def first_cause(facts: dict[str, Any]) -> str | None:
    """The cause named first, or None where nothing above info is found."""
    causes = loud_causes(facts)
    return causes[0] if causes else None
