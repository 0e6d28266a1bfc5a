"""PromptOrder: an ordering policy inside vLLM: which prompt is begun, and gone on with, next."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from mileage.policy.budget.policy import BudgetPolicy
from mileage.policy.ordering.choose import make_ordering
from mileage.policy.ordering.policy import Prompt
from mileage.vllm_plugin.policy_settings import PolicySettings
from mileage.vllm_plugin.step_reading import running_limit

__all__ = ["PromptOrder"]

_KEYS_KEPT = 4096
_MOVED = ("scheduled_new_reqs", "finished_req_ids")
"""Of a step's plan: requests that begin, and that have ended. Nothing here may end the engine."""


class PromptOrder:
    """Sorts what waits by the policy's keys, and holds a prompt in the middle for those before it.

    vLLM goes on with every prompt that it has begun before it begins another one, so that a long
    one holds up all that come behind it, however small its chunks are. A held prompt is not in
    `running` while the scheduler plans one step: it keeps its blocks, and is not scheduled, as when
    the step's tokens do not reach it; its place is given to no other one. Where the scheduler then
    begins none of those that it was held for, for lack of blocks, nothing is held until some
    request has begun or ended.

    A request keeps its key; those that were preempted stay in front. A queue that is sorted by
    priority is left alone.
    """

    def __init__(self, settings: PolicySettings, budget: BudgetPolicy | None) -> None:
        """`budget` tells how long prompts take."""
        assert settings.ordering is not None
        self._ordering = make_ordering(settings.ordering)
        self._target_s = settings.ttft_target_s
        self._budget = budget
        self._keys: dict[str, float] = {}
        self._blocked = False
        self.held: list[Any] = []
        """Requests that the next step is to leave out."""
        self.steps_held = 0
        self._limit: tuple[str, int] | None = None
        """What the scheduler's limit is called, and was before places were kept."""

    def arrange(self, scheduler: Any, now_s: float, offset_s: float) -> None:
        """Sort what waits, and choose what is held in the next step. `offset_s` added to a
        request's own arrival time is monotonic time."""
        self.held = []
        waiting = scheduler.waiting
        if not isinstance(waiting, deque) or not waiting:
            return
        if len(self._keys) > _KEYS_KEPT:
            self._keys = {k: v for k, v in self._keys.items() if k in scheduler.requests}
        # Those that were preempted have the least keys of all, and the sort is stable.
        keys = {id(r): self._key(r, now_s, offset_s) for r in waiting}
        order = sorted(waiting, key=lambda request: keys[id(request)])
        if any(old is not new for old, new in zip(waiting, order, strict=True)):
            waiting.clear()
            waiting.extend(order)
        key = keys[id(order[0])]
        _, most = running_limit(scheduler)
        if key > -math.inf and not self._blocked and len(scheduler.running) < most:
            self.held = [
                request
                for request in scheduler.running
                if request.is_prefill_chunk and self._key(request, now_s, offset_s) > key
            ]

    def _key(self, request: Any, now_s: float, offset_s: float) -> float:
        if request.num_output_tokens:
            return -math.inf
        name: str = request.request_id
        key = self._keys.get(name)
        if key is None:
            arrived_s: float = min(now_s, request.arrival_time + offset_s)
            deadline_s = math.inf if self._target_s is None else arrived_s + self._target_s
            tokens: int = request.num_prompt_tokens
            alone_s = 0.0 if self._budget is None else self._budget.alone_s(tokens, 0)
            key = self._ordering.key(Prompt(arrived_s, deadline_s, tokens, alone_s))
            self._keys[name] = key
        return key

    def hide(self, scheduler: Any) -> None:
        """Before the scheduler plans the step: take what is held out. `show` is to follow."""
        if self.held:
            names = {request.request_id for request in self.held}
            scheduler.running[:] = [r for r in scheduler.running if r.request_id not in names]
            # Else as many more would begin, and with those held too many run, which ends vLLM.
            self._limit = name, most = running_limit(scheduler)
            setattr(scheduler, name, most - len(self.held))
            self.steps_held += 1

    def show(self, scheduler: Any, output: Any) -> None:
        """After it: put what is held back, behind what has begun. `output` None: it failed."""
        held, self.held = self.held, []
        scheduler.running.extend(held)
        if self._limit is not None:
            setattr(scheduler, *self._limit)
            self._limit = None
        begun, ended = (getattr(output, name, True) for name in _MOVED)
        if begun or ended:
            self._blocked = False
        elif held:
            self._blocked = True
