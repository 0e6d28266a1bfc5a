"""Outcomes: how an engine's answer counts, by its status."""

from __future__ import annotations

from mileage.control.loads import Loads
from mileage.core.events import FailureKind
from mileage.core.request import Request
from mileage.core.timeline import Outcome
from mileage.gateway.target import Target

__all__ = ["failure_of", "outcome_of", "stream_outcome_of"]

_UNAVAILABLE = frozenset((502, 503, 504))
"""Answers of an engine, or of a proxy before it, that another replica may do better. A 500 is not
among them: engines give it for input that they cannot handle, which would take down one replica's
breaker after the other."""


def failure_of(
    status: int, loads: Loads, target: Target | None, request: Request
) -> FailureKind | None:
    """Why an attempt has failed that may be better elsewhere, or later; None: it is an answer.

    A 404 of a replica that loads the model when asked says that it has lost it, or that it was
    unloaded while the request was on its way there.
    """
    if status in _UNAVAILABLE:
        return "status"
    lost = status == 404 and target is not None and loads.loads(target.name, request.model)
    return "unloaded" if lost else None


def outcome_of(status: int) -> tuple[Outcome, str | None]:
    """The outcome of a whole answer, and the reason. What an engine lacks is no failure of it."""
    if status == 501:
        return "rejected", "endpoint_not_supported"
    return ("failed", "engine_error") if status >= 500 else ("ok", None)


def stream_outcome_of(failed: bool) -> tuple[Outcome, str | None]:
    """The outcome of a stream that came to its end, in which an error event was or was not."""
    return ("failed", "engine_error_event") if failed else ("ok", None)
