"""EngineControl: sets what one engine was asked for at a step's start, and gives it back.

Values that come within one step coalesce: only the last is ever in force. What was in force is
acknowledged by its version. Without another request within its lease the start values come back,
by the engine's own clock: whoever asked may be gone. The time comes with each call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from mileage.core.errors import ConfigError
from mileage.policy.engine_knobs import KNOBS, Clamp, EngineKnobs, RankState, clamp
from mileage.vllm_plugin.capability import probe

__all__ = ["CONTROL_OBSERVER", "EngineControl", "SetMessage"]

CONTROL_OBSERVER: Final = "control"
"""Its name in the hook: the first, so that what decides step by step finds the bounds set."""

_log = logging.getLogger("vllm.mileage")


class SetMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a server process asks of each rank: all of it, not what has changed.

    A version is known by its number and the process that made it, and the greater of two is the
    later one. Nothing is taken that did not know what the rank has: no change is lost, and every
    rank ends with the same.
    """

    version: int
    writer: str
    base: tuple[int, str]
    """The version that the knobs were merged into."""
    knobs: EngineKnobs
    lease_s: float | None
    policy: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class StepPolicy(Protocol):
    """What decides step by step inside the engine, within what is set here."""

    def ask(self, document: dict[str, Any] | None) -> None:
        """Begin what the document asks for; None ends it. Raises ConfigError."""
        ...

    def lapse(self) -> None:
        """Nobody renewed the lease: what the engine was started with decides again."""
        ...

    def bound_by(self, knobs: EngineKnobs) -> None:
        """What was set by hand: it stays below. Called after the scheduler has it."""
        ...

    def document(self) -> dict[str, Any] | None:
        """What decides, and how; None: nothing does."""
        ...


class EngineControl:
    """The control of one EngineCore; an observer of its steps. All in the engine's own thread.

    Once it has given up it still answers, but no knob can be changed any more, and no policy begun:
    nothing would end their lease.
    """

    def __init__(self, core: Any, *, rank: int, boot: str) -> None:
        self._core, self._scheduler = core, core.scheduler
        self._rank, self._boot = rank, boot
        self._facts = probe(core)
        self._requested = self._next = self._knobs = EngineKnobs()
        self._clamped: dict[str, Clamp] = {}
        self._version = self._applied_version = 0
        self._writer = ""
        self._pending = False
        self._lease_s: float | None = None
        self._until_s: float | None = None
        self._reverted = False
        self._policy_leased = False
        self._failed: str | None = None
        self._steps = 0
        self._seen: dict[str, int] = {}
        self.step_policy: Callable[[], StepPolicy | None] = lambda: None
        """Where what decides step by step is found, once it is there."""

    def before_step(self, core: Any, now_s: float) -> None:
        """Give back what has run out, and put in force what is pending."""
        self._expire(now_s)
        if self._pending:
            self._apply()
        if self._knobs.step_tokens_max is not None:
            self._keep_decodes(self._knobs.step_tokens_max)

    def after_step(
        self,
        core: Any,
        scheduler_output: Any,
        model_output: Any,
        started_ns: int,
        duration_ns: int,
        cpu_ns: int,
    ) -> None:
        """Count what the step had, for those who ask whether a value holds."""
        self._steps += 1
        tokens = scheduler_output.total_num_scheduled_tokens
        if not tokens:
            return
        requests = scheduler_output.num_scheduled_tokens
        self._see("running", len(requests))
        self._see("tokens", tokens)
        if tokens > len(requests) * self._facts.decode_tokens:
            prefill = _prefill_tokens(scheduler_output)
            if prefill is not None:
                self._see("prefill", prefill)

    def give_up(self, reason: str) -> None:
        """It has failed, and is told of no step any more: what it set is set back."""
        cannot = f"mileage's control of this engine has failed: {reason}"
        self._failed, self._reverted = reason, True
        self._lease_s = self._until_s = None
        self._knobs = EngineKnobs()
        self._put(self._knobs)
        self._facts = self._facts._replace(capabilities=dict.fromkeys(KNOBS, cannot))
        self._request(self._knobs)
        policy = self.step_policy()
        if policy is not None:
            policy.bound_by(self._knobs)
            if self._policy_leased:
                policy.lapse()
        self._policy_leased = False

    def _see(self, name: str, value: int) -> None:
        if value > self._seen.get(name, -1):
            self._seen[name] = value

    def set(self, message: SetMessage, now_s: float) -> bool:
        """Take a request for the next step; False where it did not know what was taken before.

        Raises ConfigError for a policy that this engine cannot run; nothing has changed then.
        """
        own = (self._version, self._writer)
        if own > message.base or (message.version, message.writer) <= own:
            return False
        if message.policy is not msgspec.UNSET:
            self._ask_policy(message.policy)
            self._policy_leased = message.policy is not None
        self._version, self._writer = message.version, message.writer
        self._request(message.knobs)
        if self._failed is None:
            self._lease_s = message.lease_s
            self._until_s = None if message.lease_s is None else now_s + message.lease_s
            self._reverted = False
        return True

    def state(self, now_s: float) -> RankState:
        """What is in force; an engine with nothing to do takes what is pending: its next step,
        whenever that is, begins with it."""
        self._expire(now_s)
        if self._pending and (self._failed is not None or not self._scheduler.has_requests()):
            self._apply()
        running, waiting = self._counts()
        facts, policy = self._facts, self.step_policy()
        return RankState(
            rank=self._rank,
            boot=self._boot,
            version=self._version,
            writer=self._writer,
            applied_version=self._applied_version,
            applied=self._in_force(),
            requested=self._requested,
            start=facts.start,
            clamped=self._clamped,
            bounds=facts.bounds,
            capabilities=facts.capabilities,
            lease_s=self._lease_s,
            lease_left_s=None if self._until_s is None else round(self._until_s - now_s, 3),
            reverted=self._reverted,
            steps_total=self._steps,
            running=running,
            waiting=waiting,
            step_tokens_seen_max=self._seen.get("tokens"),
            prefill_tokens_step_max=self._seen.get("prefill"),
            running_seen_max=self._seen.get("running"),
            policy=None if policy is None else policy.document(),
            graph_sizes=list(facts.graph_sizes),
            prompt_block_tokens=facts.prompt_block or None,
            failed=self._failed,
        )

    def _ask_policy(self, document: dict[str, Any] | None) -> None:
        if document is not None and self._failed is not None:
            expected = f"null: mileage's control of this engine has failed: {self._failed}"
            raise ConfigError("policy", document, expected)
        policy = self.step_policy()
        if policy is not None:
            policy.ask(document)
        elif document is not None:
            raise ConfigError("policy", document, "null: no policy can run inside this engine")

    def _expire(self, now_s: float) -> None:
        if self._until_s is None or now_s < self._until_s:
            return
        self._until_s, self._reverted = None, True
        self._request(EngineKnobs())
        policy = self.step_policy()
        if self._policy_leased and policy is not None:
            policy.lapse()
        self._policy_leased = False
        _log.warning("mileage: nobody renewed the control's lease: back to the start values")

    def _request(self, knobs: EngineKnobs) -> None:
        facts = self._facts
        self._requested, self._pending = knobs, True
        self._next, self._clamped = clamp(
            knobs, facts.bounds, facts.capabilities, facts.graph_sizes
        )

    def _apply(self) -> None:
        self._pending = False
        self._applied_version = self._version
        if self._next == self._knobs:
            return
        self._knobs = self._next
        self._seen.clear()
        self._put(self._knobs)
        policy = self.step_policy()
        if policy is not None:
            policy.bound_by(self._knobs)

    def _put(self, knobs: EngineKnobs) -> None:
        """Into the scheduler; the start value of those not asked for."""
        facts, scheduler = self._facts, self._scheduler
        start = facts.start
        if facts.capabilities["active_max"] is True:
            scheduler.max_num_active_reqs = _or(knobs.active_max, start.active_max)
        if facts.capabilities["step_tokens_max"] is True:
            scheduler.max_num_scheduled_tokens = _or(knobs.step_tokens_max, start.step_tokens_max)
        if facts.capabilities["long_prefill_tokens_max"] is True:
            value = _or(knobs.long_prefill_tokens_max, start.long_prefill_tokens_max)
            scheduler.scheduler_config.long_prefill_token_threshold = value

    def _keep_decodes(self, tokens: int) -> None:
        """Those that run get their next token, also beyond the budget: the last of them would
        wait until others have ended. So would prompts that go on by whole blocks only."""
        facts = self._facts
        least = len(self._scheduler.running) * facts.decode_tokens + facts.prompt_block
        high = self._facts.bounds["step_tokens_max"][1]
        self._scheduler.max_num_scheduled_tokens = min(max(tokens, least), high)

    def _in_force(self) -> EngineKnobs:
        """What is set: the knobs as clamped, or the start value of those not asked for."""
        knobs, start = self._knobs, self._facts.start
        return EngineKnobs(
            active_max=_or(knobs.active_max, start.active_max),
            step_tokens_max=_or(knobs.step_tokens_max, start.step_tokens_max),
            long_prefill_tokens_max=_or(
                knobs.long_prefill_tokens_max, start.long_prefill_tokens_max
            ),
            waiting_max=knobs.waiting_max,
        )

    def _counts(self) -> tuple[int, int]:
        scheduler = self._scheduler
        counts = getattr(scheduler, "get_request_counts", None)
        if callable(counts):
            running, waiting = counts()
            return int(running), int(waiting)
        return len(scheduler.running), len(scheduler.waiting)


def _or(value: int | None, start: int | None) -> int | None:
    return start if value is None else value


def _prefill_tokens(output: Any) -> int | None:
    """Prompt tokens of a step; None where this version does not tell which requests decode."""
    cached = output.scheduled_cached_reqs
    generated = getattr(cached, "num_output_tokens", None)
    if generated is None:
        return None
    tokens = output.num_scheduled_tokens
    first = sum(tokens.get(request.req_id, 0) for request in output.scheduled_new_reqs)
    rest = (n for n, done in zip(cached.req_ids, generated, strict=False) if done == 0)
    return int(first + sum(tokens.get(name, 0) for name in rest))
