"""Usage: token counts out of engines' answers, whichever of the APIs' forms they have."""

from __future__ import annotations

import msgspec

from mileage.core.events import Finished

__all__ = ["Usage", "usage_of_answer"]


_COUNT_MAX = 10**9
"""No request has more tokens: a count above it is nonsense, and sums of such overflow 64 bits."""


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class UsageObject(msgspec.Struct):
    """A `usage` object: OpenAI chat and completions, OpenAI responses, or Anthropic messages."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: UsageObject | None = None


class Usage:
    """Token counts as reported so far; a count that no report gave stays None."""

    __slots__ = ("cached_tokens", "output_tokens", "prompt_tokens", "reasoning_tokens")

    def __init__(self) -> None:
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None
        self.reasoning_tokens: int | None = None

    def finished(
        self, request_id: int, itl_p99_s: float | None = None, itl_mean_s: float | None = None
    ) -> Finished:
        """The event that the request was answered with this usage, its tokens so far apart."""
        return Finished(
            request_id,
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            itl_p99_s,
            itl_mean_s,
        )

    def take(self, usage: UsageObject) -> None:
        """Take a report's counts; a later report replaces an earlier one, field by field.

        A count that no request can have (negative, above 10^9) is left out.
        """
        prompt = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
        cached = usage.cache_read_input_tokens
        if cached is not None and prompt is not None:
            # Anthropic's input_tokens are those that no cache had; the others' are all of them.
            prompt += cached + (usage.cache_creation_input_tokens or 0)
        details = usage.prompt_tokens_details or usage.input_tokens_details
        if cached is None and details is not None:
            cached = details.cached_tokens
        output = usage.completion_tokens
        if output is None:
            output = usage.output_tokens
        output_details = usage.completion_tokens_details or usage.output_tokens_details
        reasoning = output_details.reasoning_tokens if output_details is not None else None
        if prompt is not None and 0 <= prompt <= _COUNT_MAX:
            self.prompt_tokens = prompt
        if cached is not None and 0 <= cached <= _COUNT_MAX:
            self.cached_tokens = cached
        if output is not None and 0 <= output <= _COUNT_MAX:
            self.output_tokens = output
        if reasoning is not None and 0 <= reasoning <= _COUNT_MAX:
            self.reasoning_tokens = reasoning


_answer = msgspec.json.Decoder(_Answer)


def usage_of_answer(body: bytes) -> Usage:
    """The usage of a whole JSON answer; all None where it has none or is not what it should be."""
    usage = Usage()
    try:
        found = _answer.decode(body).usage
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return usage
    if found is not None:
        usage.take(found)
    return usage
