"""PolicyHost: Mileage's policies inside vLLM: asked before each step, told after it what it took.

They are the very objects that decide in the gateway and the simulator. The host reads vLLM's
queues into what they see, and sets what they decide: two limits that the scheduler reads anew in
every step. It reads no clock: the time comes with each call.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from mileage.policy.budget.choose import make_budget
from mileage.policy.budget.policy import BudgetPolicy, StepLoad
from mileage.policy.engine_knobs import EngineKnobs, clamp
from mileage.policy.ordering.deadline import renewed_deadline_s
from mileage.vllm_plugin.answers import Answers, Step
from mileage.vllm_plugin.capability import EngineFacts
from mileage.vllm_plugin.failure import failure_of
from mileage.vllm_plugin.limit_host import LimitHost
from mileage.vllm_plugin.policy_settings import PolicySettings
from mileage.vllm_plugin.prompt_order import PromptOrder
from mileage.vllm_plugin.step_reading import (
    Running,
    context_tokens,
    decodes_first,
    pending_prompts,
    read_running,
    running_limit,
    step_taken,
)

__all__ = ["PolicyHost"]

_TOKENS: Final = "max_num_scheduled_tokens"
_ORDER: Final = "mileage_order"
"""Only schedulers of our own class have it (`scheduler_class`)."""
_RENEWED_KEPT: Final = 4096
_Part: TypeAlias = Literal["budget", "limits", "ordering"]


class _Made(NamedTuple):
    budget: BudgetPolicy | None = None
    limits: LimitHost | None = None
    order: PromptOrder | None = None


class PolicyHost:
    """The policies of one scheduler; without settings it does nothing, and nothing is changed.

    Requests are taken in the order of the scheduler, unless that is of our own class. What it was
    started with, and below that what `bound_by` says, is the most that a policy can choose; it
    comes back when policies are switched off, and when one of them fails.
    """

    def __init__(self, scheduler: Any, facts: EngineFacts) -> None:
        """`facts`: of the engine, before anything was changed."""
        self._scheduler, self._facts = scheduler, facts
        self._bounds = EngineKnobs()
        self._settings: PolicySettings | None = None
        self._budget: BudgetPolicy | None = None
        self._limits: LimitHost | None = None
        self._answers = Answers(None)
        self._renewed_s: dict[str, float] = {}
        self._gone = self._came = 0
        self._steps = self._steps_bounded = self._mixed_steps = self._mixed_tokens = 0
        self._tokens: int | None = None
        self._failure: str | None = None
        self._turn: _Part | None = None
        """Whose turn it is, in case that it fails."""
        self.failed: PolicySettings | None = None
        """What was in force when one of its policies failed; None: nothing has failed since."""
        self._now_s = self._offset_s = 0.0

    @property
    def settings(self) -> PolicySettings | None:
        """What decides now; None: nothing does."""
        return self._settings

    @property
    def budget(self) -> BudgetPolicy | None:
        """The budget policy; None: there is none."""
        return self._budget

    def why_not(self) -> dict[str, str]:
        """What this engine cannot have decided by a policy, and why."""
        can = self._facts.capabilities
        knobs = {"limits": can["active_max"], "budget": can["step_tokens_max"]}
        found = {name: why for name, why in knobs.items() if isinstance(why, str)}
        if not hasattr(self._scheduler, _ORDER):
            found["ordering"] = "the engine was not started with mileage's scheduler class"
        return found

    def configure(self, settings: PolicySettings | None) -> None:
        """Begin with fresh policies; None: switch them off, and set everything back.

        Where one of them cannot be made nothing has changed.
        """
        made = _Made() if settings is None else self._make(settings)
        if settings is not None:
            self._came = len(self._scheduler.requests) + self._gone
        self._give_back()
        self._settings, self._failure, self.failed, self._turn = settings, None, None, None
        self._budget, self._limits, self._tokens = made.budget, made.limits, None
        self._steps = self._steps_bounded = self._mixed_steps = self._mixed_tokens = 0
        self._renewed_s.clear()
        self._answers = Answers(None if settings is None else settings.itl_target_s)
        if made.order is not None:
            self._scheduler.mileage_order = made.order

    def _make(self, settings: PolicySettings) -> _Made:
        lacks = self.why_not()
        budget, limits, order = None, None, None
        if settings.budget is not None and "budget" not in lacks:
            budget = make_budget(settings.budget, settings.itl_target_s, settings.model)
        if settings.limits is not None and "limits" not in lacks:
            # Bounds set by hand come and go: `update` is told of those in force.
            assert self._facts.start.active_max is not None
            limits = LimitHost(settings, self._facts.start.active_max)
        if settings.ordering is not None and "ordering" not in lacks:
            order = PromptOrder(settings, budget)
        return _Made(budget, limits, order)

    def bound_by(self, knobs: EngineKnobs) -> None:
        """What was set by hand: policies stay below it. Called after the scheduler has it."""
        self._bounds = knobs
        if self._limits is not None:
            # The scheduler has the bound now, and the policy's next turn may be a second away.
            limit = min(self._limits.limit, self._most("active_max"))
            self._scheduler.max_num_active_reqs = self._snapped(limit)

    def _most(self, name: Literal["active_max", "step_tokens_max"]) -> int:
        start, bound = getattr(self._facts.start, name), getattr(self._bounds, name)
        assert isinstance(start, int)  # nothing is decided where it is not known
        return start if bound is None else min(bound, start)

    def _give_back(self) -> None:
        if self._budget is not None:
            self._scheduler.max_num_scheduled_tokens = self._most("step_tokens_max")
        if self._limits is not None:
            self._scheduler.max_num_active_reqs = self._most("active_max")
        if hasattr(self._scheduler, _ORDER):
            self._scheduler.mileage_order = None

    def begin(self, now_s: float, offset_s: float) -> None:
        """The scheduler is about to plan a step. `offset_s` added to the wall time, in which
        requests say when they came, is `now_s`'s time."""
        if self._settings is None:
            return
        self._now_s, self._offset_s = now_s, offset_s
        try:
            order: PromptOrder | None = getattr(self._scheduler, _ORDER, None)
            slots = self._slots(now_s)
            if order is not None:
                self._turn = "ordering"
                order.arrange(self._scheduler, now_s, offset_s)
            self._turn = None
            running = read_running(self._scheduler, () if order is None else order.held)
            self._answers.observe(running.decoding, self._scheduler.requests, offset_s)
            if self._budget is not None:
                self._turn = "budget"
                self._plan(self._budget, running, slots, now_s)
        except Exception as error:
            self.fail(error)
            raise

    def _slots(self, now_s: float) -> int:
        """How many more requests may run in this step."""
        scheduler, limits = self._scheduler, self._limits
        self._gone += len(getattr(scheduler, "finished_req_ids", ()))
        came, self._came = self._came, len(scheduler.requests) + self._gone
        if limits is not None:
            self._turn = "limits"
            limits.arrived(max(0, self._came - came))
            if limits.due(now_s, len(scheduler.running)):
                samples = self._answers.samples()
                limit = limits.update(scheduler, samples, now_s, self._most("active_max"))
                scheduler.max_num_active_reqs = self._snapped(limit)
        return running_limit(scheduler)[1] - len(scheduler.running)

    def _snapped(self, limit: int) -> int:
        """The limit, or that of the next smaller CUDA graph: rows between are paid for in vain."""
        facts = self._facts
        wanted = EngineKnobs(active_max=limit)
        taken, _ = clamp(wanted, facts.bounds, facts.capabilities, facts.graph_sizes)
        return limit if taken.active_max is None else taken.active_max

    def _plan(self, budget: BudgetPolicy, running: Running, slots: int, now_s: float) -> None:
        scheduler, most = self._scheduler, self._most("step_tokens_max")
        room = most - running.decode_tokens
        tokens = None
        if room > 0:
            tokens = self._asked(budget, running, slots, room, now_s)
        self._tokens = tokens
        # A bound set by hand is not to keep the last of those that decode waiting, nor a small
        # chunk those prompts that go on by whole blocks only.
        high = self._facts.bounds["step_tokens_max"][1]
        least = min(running.decode_tokens + self._facts.prompt_block, high)
        if tokens is None:
            limit = max(most, least)
        else:
            limit = max(1, running.decode_tokens + min(tokens, room))
            limit = max(limit, least) if self._facts.prompt_block else limit
        if limit < most:
            self._steps_bounded += 1
            decodes_first(scheduler, running)
        scheduler.max_num_scheduled_tokens = limit

    def _asked(
        self, budget: BudgetPolicy, running: Running, slots: int, room: int, now_s: float
    ) -> int | None:
        """Prompt tokens of the step; None: no prompt is there."""
        pending = pending_prompts(
            self._scheduler, running, slots=slots, tokens_max=room, deadline_s=self._deadline_s
        )
        if not pending:
            return None
        answers, decoding = self._answers, running.decoding
        load = StepLoad(
            len(decoding),
            context_tokens(decoding),
            room,
            lambda: answers.spare_gaps(decoding),
            lambda: answers.past(decoding, now_s),
        )
        return budget.tokens(load, pending, now_s)

    def _deadline_s(self, request: Any, tokens: int, first: bool) -> float:
        """When its first token should come; inf: it is there already, or there is no target."""
        assert self._settings is not None
        target_s = self._settings.ttft_target_s
        if target_s is None or request.num_output_tokens:
            return math.inf
        name: str = request.request_id
        arrived_s: float = min(self._now_s, request.arrival_time + self._offset_s)
        deadline_s = self._renewed_s.get(name, arrived_s + target_s)
        if first and self._budget is not None:
            # What is lost is not to make others late as well, and still it is not to wait for ever.
            soonest_s = self._now_s + self._budget.alone_s(tokens, request.num_computed_tokens)
            if deadline_s < soonest_s:
                deadline_s = renewed_deadline_s(arrived_s, deadline_s, soonest_s)
                self._renewed_s[name] = deadline_s
        if len(self._renewed_s) > _RENEWED_KEPT:
            here = self._scheduler.requests
            self._renewed_s = {k: at_s for k, at_s in self._renewed_s.items() if k in here}
        return deadline_s

    def ended(self, output: Any, started_s: float, ended_s: float, took_s: float) -> None:
        """A step is over. `took_s` is what those that decode had to wait for it: with the time
        since the step before, where they were there then."""
        if self._settings is None or not output.total_num_scheduled_tokens:
            return
        try:
            self._turn = None
            taken = step_taken(output)
            if self._budget is not None:
                self._turn = "budget"
                self._budget.learn(
                    taken.decoding,
                    taken.kv_tokens,
                    taken.prefill_tokens,
                    taken.prefill_pairs,
                    took_s,
                )
                self._turn = None
            self._steps += 1
            if taken.decoding and taken.prefill_tokens:
                self._mixed_steps += 1
                self._mixed_tokens += taken.prefill_tokens
            running = len(output.num_scheduled_tokens)
            step = Step(
                ended_s, took_s, running, taken.decoding, taken.kv_tokens, taken.prefill_tokens
            )
            self._answers.took(step, taken.begun, started_s)
        except Exception as error:
            self.fail(error)
            raise

    def fail(self, error: Exception, settings: PolicySettings | None = None) -> None:
        """Without its policies an engine goes on as it was started. `settings`: those that could
        not be begun; None: what was in force has failed."""
        names: tuple[_Part, ...] = ("budget", "limits", "ordering")
        if settings is None:
            settings = self._settings
            names = names if self._turn is None else (self._turn,)
        chosen = [(name, getattr(settings, name, None)) for name in names]
        who = ", ".join(f"{name}={policy}" for name, policy in chosen if policy is not None)
        self.configure(None)
        self._failure, self.failed = f"{who}: {failure_of(error)}", settings

    def document(self) -> dict[str, Any] | None:
        """What decides, and what it has decided last; None: nothing does, and nothing failed."""
        settings, limits = self._settings, self._limits
        if settings is None:
            return None if self._failure is None else {"failed": self._failure}
        order: PromptOrder | None = getattr(self._scheduler, _ORDER, None)
        return {
            "budget": settings.budget,
            "limits": settings.limits,
            "ordering": settings.ordering,
            "itl_target_s": settings.itl_target_s,
            "ttft_target_s": settings.ttft_target_s,
            "unavailable": {k: why for k, why in self.why_not().items() if getattr(settings, k)},
            "steps": self._steps,
            "steps_bounded": self._steps_bounded,
            "mixed_steps": self._mixed_steps,
            "mixed_prefill_tokens": self._mixed_tokens,
            "steps_held": None if order is None else order.steps_held,
            "prefill_tokens": self._tokens,
            "step_tokens_max": getattr(self._scheduler, _TOKENS),
            "active_max": None if limits is None else self._scheduler.max_num_active_reqs,
            "reason": None if limits is None else limits.reason,
        }
