"""Outcomes: how an engine's answer counts, by its status."""

from __future__ import annotations

from mileage.control.loads import Loads
from mileage.core.events import FailureKind
from mileage.core.request import Request
from mileage.core.timeline import Outcome
from mileage.gateway.refusals import engine_message
from mileage.gateway.target import Target
from mileage.gateway.whole import WholeAnswer

__all__ = ["failure_of", "outcome_of", "stream_outcome_of"]

_UNAVAILABLE = frozenset((502, 503, 504))
"""Answers of an engine, or of a proxy before it, that another replica may do better. A 500 is not
among them: engines give it for input that they cannot handle, which would take down one replica's
breaker after the other."""


def failure_of(
    status: int, whole: WholeAnswer, loads: Loads, target: Target | None, request: Request
) -> tuple[FailureKind, str] | None:
    """Why an attempt has failed that may be better elsewhere, or later, and that for people; None:
    it is an answer.

    A 404 of a replica that loads the model when asked, and that names the model, says that it has
    lost it, or that it was unloaded while the request was on its way there. Any other is of what
    the client asked for: an endpoint that there is not, or an earlier response.
    """
    kind: FailureKind = "status"
    if status == 404 and target is not None and loads.loads(target.name, request.model):
        kind = "unloaded"
    elif status not in _UNAVAILABLE:
        return None
    said = engine_message(whole.body()) or ""
    if kind == "unloaded" and request.model not in said:
        return None
    return kind, f"the engine answered {status}" + (f": {said}" if said else "")


def outcome_of(status: int) -> tuple[Outcome, str | None]:
    """The outcome of a whole answer, and the reason. What an engine lacks is no failure of it."""
    if status == 501:
        return "rejected", "endpoint_not_supported"
    return ("failed", "engine_error") if status >= 500 else ("ok", None)


def stream_outcome_of(failed: bool) -> tuple[Outcome, str | None]:
    """The outcome of a stream that came to its end, in which an error event was or was not."""
    return ("failed", "engine_error_event") if failed else ("ok", None)
