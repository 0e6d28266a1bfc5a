"""A small scheduler in the image of vLLM's: what it tells of each step, in plain objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["Part", "step_output"]


class Part:
    """One request: `tokens` of it in this step, `context` before."""

    def __init__(
        self,
        name: str,
        context: int,
        tokens: int,
        *,
        prompt: int | None = None,
        outputs: int = 0,
        resumed: bool = False,
        everything: int | None = None,
    ) -> None:
        """`prompt`: it is told as new, with so many prompt tokens. `everything`: as new again after
        a preemption, with so many tokens in all."""
        self.name, self.context, self.tokens = name, context, tokens
        self.prompt, self.outputs, self.resumed = prompt, outputs, resumed
        self.everything = everything


def step_output(
    *requests: Part,
    finished: tuple[str, ...] = (),
    preempted: tuple[str, ...] = (),
    flags: bool = False,
) -> Any:
    """A SchedulerOutput; `flags`: with one flag for each that was resumed, as old versions do."""
    cached = [r for r in requests if r.prompt is None]
    told = SimpleNamespace(
        req_ids=[r.name for r in cached],
        num_computed_tokens=[r.context for r in cached],
    )
    if flags:
        told.resumed_from_preemption = [r.resumed for r in cached]
    else:
        told.resumed_req_ids = {r.name for r in cached if r.resumed}
        told.num_output_tokens = [r.outputs for r in cached]
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(
                req_id=r.name,
                prompt_token_ids=[0] * r.prompt,
                num_computed_tokens=r.context,
                prefill_token_ids=None if r.everything is None else [0] * r.everything,
            )
            for r in requests
            if r.prompt is not None
        ],
        scheduled_cached_reqs=told,
        num_scheduled_tokens={r.name: r.tokens for r in requests},
        total_num_scheduled_tokens=sum(r.tokens for r in requests),
        scheduled_spec_decode_tokens={},
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted) or None,
    )
