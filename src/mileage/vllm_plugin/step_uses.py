"""StepUses: what each request has of one step, from what vLLM's scheduler decided for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, Final, NamedTuple

from mileage.ledger.step_record import UseRow

__all__ = ["StepUses"]

_KNOWN_MAX: Final = 100_000
"""Requests in flight that are known; an engine has a few thousands at most."""


class _Filling(NamedTuple):
    """A request whose prompt, or what a preemption lost of it, is not computed to its end."""

    until: int
    """Tokens before this one are its prompt, and what it had generated when it was preempted."""
    again: int
    """Tokens before this one were computed once before."""
    reached: int
    """Tokens before this one are computed."""


class StepUses:
    """Follows an engine's requests from step to step; for one engine, and its thread.

    `rows` reads plain attributes of vLLM's SchedulerOutput. Of most requests each step computes one
    token more: for these it costs a tuple, and the few that are still being filled cost a little
    more. Several requests of the engine with one id (the choices of one call, the prompts of a
    batch, a retry) have one row together.
    """

    def __init__(self, id_of: Callable[[str], int]) -> None:
        """`id_of`: the ledger's id of a request that the engine calls by that name."""
        self._id_of = id_of
        self._ids: dict[str, int] = {}
        self._prompts: dict[str, int] = {}
        self._filling: dict[str, _Filling] = {}
        self._preempted: set[str] = set()
        self._several: dict[int, int] = {}
        """Of ids that more than one request has: how many others."""
        self._single: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def rows(self, output: Any) -> list[UseRow]:
        """The step's uses, as StepUse has them; none where nothing was computed."""
        for name in output.finished_req_ids:
            self._forget(name)
        scheduled: dict[str, int] = output.num_scheduled_tokens
        if len(self._ids) > _KNOWN_MAX:
            for name in self._ids.keys() - scheduled.keys():
                self._forget(name)
        self._preempted.update(getattr(output, "preempted_req_ids", None) or ())
        rows: list[UseRow] = []
        for new in output.scheduled_new_reqs:
            name = new.req_id
            self._begin(name, new)
            rows.append(self._use(name, new.num_computed_tokens, scheduled[name]))
        rows += self._cached(output.scheduled_cached_reqs, scheduled)
        return _merged(rows) if self._several else rows

    def _cached(self, cached: Any, scheduled: dict[str, int]) -> list[UseRow]:
        """Of requests that were in steps before."""
        names, contexts = cached.req_ids, cached.num_computed_tokens
        for name in _resumed(cached):
            place = names.index(name)
            outputs = getattr(cached, "num_output_tokens", None)
            generated = outputs[place] if outputs else 0
            self._lost(name, self._prompts.get(name, 0) + generated, contexts[place])
        tokens = map(scheduled.__getitem__, names)
        try:
            # Without a line of Python for each: steps of hundreds of requests take milliseconds.
            rows: list[UseRow] = list(
                zip(map(self._ids.__getitem__, names), repeat(0), tokens, contexts, strict=False)
            )
        except KeyError:
            use = self._use
            return [use(n, c, scheduled[n]) for n, c in zip(names, contexts, strict=True)]
        if filling := self._filling:
            for place in [place for place, name in enumerate(names) if name in filling]:
                name = names[place]
                rows[place] = self._use(name, contexts[place], scheduled[name])
        return rows

    def _use(self, name: str, context: int, tokens: int) -> UseRow:
        request = self._ids.get(name)
        if request is None:  # its beginning was not seen: as if it had no prompt
            request = self._know(name, 0)
        filling = self._filling.get(name)
        if filling is None:
            return (request, 0, tokens, context)
        until, again, _ = filling
        prefill = min(tokens, max(0, until - context))
        recomputed = min(tokens, max(0, again - context))
        if context + tokens >= until:
            del self._filling[name]
        else:
            self._filling[name] = _Filling(until, again, context + tokens)
        return (request, prefill, tokens - prefill, context, recomputed)

    def _begin(self, name: str, new: Any) -> None:
        """A request's first step; in some versions also its first after a preemption."""
        prompt = _prompt_tokens(new)
        if name in self._preempted and name in self._ids:
            self._preempted.discard(name)
            everything = getattr(new, "prefill_token_ids", None)
            total = prompt if everything is None else len(everything)
            self._lost(name, total, new.num_computed_tokens)
            return
        if name in self._ids:  # a session that goes on with a longer prompt
            self._forget(name)
        self._know(name, prompt)
        self._filling[name] = _Filling(prompt, 0, new.num_computed_tokens)

    def _lost(self, name: str, total: int, context: int) -> None:
        """A preemption took what was computed of a request, save `context` tokens that it found in
        the prefix cache. Of its `total` tokens the last one was not computed yet."""
        prompt = self._prompts.get(name, 0)
        before = self._filling.get(name)
        again = max(0, total - 1) if before is None else max(before.again, before.reached)
        self._filling[name] = _Filling(max(prompt, again), again, context)

    def _know(self, name: str, prompt: int) -> int:
        request = self._id_of(name)
        self._ids[name] = request
        self._prompts[name] = prompt
        if request in self._single:
            self._several[request] = self._several.get(request, 0) + 1
        else:
            self._single.add(request)
        return request

    def _forget(self, name: str) -> None:
        request = self._ids.pop(name, None)
        if request is None:
            return
        self._prompts.pop(name, None)
        self._filling.pop(name, None)
        self._preempted.discard(name)
        others = self._several.get(request, 0)
        if others > 1:
            self._several[request] = others - 1
        elif others:
            del self._several[request]
        else:
            self._single.discard(request)


def _resumed(cached: Any) -> Any:
    """Names of those that go on after a preemption: a set, in older versions one flag for each."""
    names = getattr(cached, "resumed_req_ids", None)
    if names is None:
        flags = cached.resumed_from_preemption
        names = [name for name, flag in zip(cached.req_ids, flags, strict=True) if flag]
    return names


def _prompt_tokens(new: Any) -> int:
    tokens = new.prompt_token_ids
    if tokens is None:
        embeds = getattr(new, "prompt_embeds", None)
        return 0 if embeds is None else int(embeds.shape[0])
    return len(tokens)


def _merged(rows: list[UseRow]) -> list[UseRow]:
    """Each id once: what its requests have, added up."""
    sums: dict[int, UseRow] = {}
    for row in rows:
        whole = (*row, *(0,) * (5 - len(row)))
        known = sums.get(row[0])
        if known is not None:
            whole = (row[0], *(a + b for a, b in zip(known[1:], whole[1:], strict=True)))
        sums[row[0]] = whole
    return list(sums.values())
