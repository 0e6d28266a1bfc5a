"""Outcomes: how an engine's answer counts, by its status."""

from __future__ import annotations

from mileage.core.timeline import Outcome

__all__ = ["UNAVAILABLE", "outcome_of", "stream_outcome_of"]

UNAVAILABLE = frozenset((502, 503, 504))
"""Answers of an engine, or of a proxy before it, that another replica may do better. A 500 is not
among them: engines give it for input that they cannot handle, which would take down one replica's
breaker after the other."""


def outcome_of(status: int) -> tuple[Outcome, str | None]:
    """The outcome of a whole answer, and the reason. What an engine lacks is no failure of it."""
    if status == 501:
        return "rejected", "endpoint_not_supported"
    return ("failed", "engine_error") if status >= 500 else ("ok", None)


def stream_outcome_of(failed: bool) -> tuple[Outcome, str | None]:
    """The outcome of a stream that came to its end, in which an error event was or was not."""
    return ("failed", "engine_error_event") if failed else ("ok", None)
