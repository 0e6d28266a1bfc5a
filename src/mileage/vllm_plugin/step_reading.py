"""What a vLLM scheduler has before it, and what a step of it took, as the policies see it.

Only attributes are read that schedulers of the V1 engine have had since their first version, or
that are asked for with a fallback. Requests here are vLLM's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from mileage.policy.budget.policy import Pending

__all__ = [
    "Running",
    "StepTaken",
    "context_tokens",
    "decodes_first",
    "pending_prompts",
    "read_running",
    "running_limit",
    "step_taken",
]

_READY = frozenset({"WAITING", "PREEMPTED"})
"""Of what waits, by the name of its status: what can begin in the next step."""


class Running(NamedTuple):
    """The requests that run, by what the next step does with them."""

    decoding: list[Any]
    prefilling: list[Any]
    """In the middle of their prompts, in the order in which the scheduler takes them."""
    decode_tokens: int
    """Of those that decode: with speculation more than one each."""
    mixed: bool
    """One that is in the middle of its prompt comes before one that decodes."""


def _left(request: Any) -> int:
    """Tokens that are to be computed before its next token comes out."""
    placeholders: int = getattr(request, "num_output_placeholders", 0)
    left: int = request.num_tokens_with_spec + placeholders - request.num_computed_tokens
    return max(0, left)


def _in_prompt(request: Any) -> bool:
    chunk = getattr(request, "is_prefill_chunk", None)
    if chunk is None:
        return bool(request.num_computed_tokens < request.num_prompt_tokens)
    return bool(chunk)


def read_running(scheduler: Any, held: Collection[Any] = ()) -> Running:
    """The requests that run now, but for those that are to be left out of the next step."""
    running: list[Any] = scheduler.running
    prompts = [request for request in running if _in_prompt(request)]
    if not prompts:
        decoding = list(running)
    else:
        decoding = [request for request in running if not _in_prompt(request)]
    tokens = len(decoding)
    if getattr(scheduler, "num_spec_tokens", 0):
        tokens = sum(max(1, _left(request)) for request in decoding)
    behind = running[len(decoding) :]
    mixed = any(a is not b for a, b in zip(behind, prompts, strict=True))
    prefilling = [request for request in prompts if request not in held] if held else prompts
    return Running(decoding, prefilling, tokens, mixed)


def running_limit(scheduler: Any) -> tuple[str, int]:
    """Name and value of what bounds how many run; older versions have the second one alone."""
    name = "max_num_active_reqs"
    if getattr(scheduler, name, None) is None:
        name = "max_num_running_reqs"
    return name, int(getattr(scheduler, name))


def context_tokens(requests: Iterable[Any]) -> int:
    """Tokens of context of all of these."""
    return sum([request.num_computed_tokens for request in requests])


def decodes_first(scheduler: Any, running: Running) -> None:
    """Let those that decode come before the prompts in the middle.

    The scheduler hands its tokens out in this order. It is so by itself, but for engines with a
    threshold for long prompts and after preemptions; a prompt before those that decode would take
    the tokens that are for them.
    """
    if running.mixed:
        scheduler.running.sort(key=_in_prompt)


def _ready(scheduler: Any, slots: int) -> Iterator[Any]:
    waiting: Iterable[Any] = scheduler.waiting
    return islice((r for r in waiting if r.status.name in _READY), max(0, slots))


def pending_prompts(
    scheduler: Any,
    running: Running,
    *,
    slots: int,
    tokens_max: int,
    deadline_s: Callable[[Any, int, bool], float],
) -> list[Pending]:
    """Prompts in the order in which the scheduler takes them: at most `slots` of those that wait,
    and no more than fill `tokens_max`. `deadline_s` tells a request's, with so many tokens left,
    and whether it is the first.

    What of a prompt that waits is in the prefix cache is not known before it begins, and counted.
    """
    pending: list[Pending] = []
    total = 0
    for requests in (running.prefilling, _ready(scheduler, slots)):
        for request in requests:
            if total >= tokens_max:
                return pending
            tokens = _left(request)
            if tokens:
                deadline = deadline_s(request, tokens, not pending)
                pending.append(Pending(deadline, tokens, request.num_computed_tokens))
                total += tokens
    return pending


class StepTaken(NamedTuple):
    """What a step computed, in the measure of `BudgetPolicy.learn`."""

    decoding: int
    kv_tokens: int
    prefill_tokens: int
    prefill_pairs: float
    begun: tuple[str, ...]
    """Requests that ran for the first time."""


def step_taken(output: Any) -> StepTaken:
    """What a scheduler's output made the model compute."""
    scheduled, cached = output.num_scheduled_tokens, output.scheduled_cached_reqs
    drafts = output.scheduled_spec_decode_tokens
    if not output.scheduled_new_reqs and output.total_num_scheduled_tokens == len(scheduled):
        # A token each: they decode. (A prompt's last chunk of one token is taken for one of them.)
        return StepTaken(len(scheduled), sum(cached.num_computed_tokens), 0, 0.0, ())
    decoding = kv_tokens = prefill_tokens = 0
    pairs = 0.0
    begun = []
    for request in output.scheduled_new_reqs:
        tokens = scheduled[request.req_id]
        begun.append(request.req_id)
        prefill_tokens += tokens
        pairs += _pairs(request.num_computed_tokens, tokens)
    for name, before, produced in zip(
        cached.req_ids, cached.num_computed_tokens, _produced(cached), strict=True
    ):
        tokens = scheduled[name]
        # One that was preempted computes what it had generated anew.
        if produced and tokens <= 1 + len(drafts.get(name, ())):
            decoding += 1
            kv_tokens += before
        else:
            prefill_tokens += tokens
            pairs += _pairs(before, tokens)
    return StepTaken(decoding, kv_tokens, prefill_tokens, pairs, tuple(begun))


def _produced(cached: Any) -> list[int]:
    """Output tokens of each so far. Versions that do not tell: one token is one that decodes."""
    told: list[int] | None = getattr(cached, "num_output_tokens", None)
    return told if told is not None else [1] * len(cached.req_ids)


def _pairs(before: int, tokens: int) -> float:
    return tokens * before + tokens * (tokens + 1) / 2
