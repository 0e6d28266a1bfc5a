"""Token counts that an engine can have come to: one that cannot be would weigh for days."""

from __future__ import annotations

import msgspec

from mileage.core.events import Finished
from mileage.core.request import Request

__all__ = ["TOKENS_MAX", "plausible"]

TOKENS_MAX = 1_000_000
"""Output tokens of one answer, or prompt tokens: an engine that tells of more tells nonsense."""


def plausible(event: Finished, request: Request) -> Finished:
    """The event without counts that no engine can have come to."""
    prompt, output = event.prompt_tokens, event.output_tokens
    if output is not None and output > TOKENS_MAX * max(1, request.choices):
        event = msgspec.structs.replace(event, output_tokens=None)
    if prompt is not None and prompt > TOKENS_MAX * max(1, request.batch_items):
        event = msgspec.structs.replace(event, prompt_tokens=None)
    return event
