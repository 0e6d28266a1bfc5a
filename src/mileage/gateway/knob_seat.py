"""KnobSeat: what one engine is to be asked next, and what its answers mean. It reads no clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mileage.core.slo import Slo
from mileage.gateway.knob_status import KnobEvent, KnobEventKind, KnobState, KnobStatus
from mileage.policy.control_fault import ControlFault, FaultKind
from mileage.policy.engine_cap import engine_cap, running_max
from mileage.policy.engine_knobs import KNOBS, ControlDocument

__all__ = ["KnobSeat"]

_RENEW_RATIO: Final = 1 / 3
"""Of the lease, from one request to the next, and the longest that an answer is waited for: one
renewal may hang, or two fail at once, before it runs out."""
_ANSWER_MAX_S: Final = 30.0
"""With a long lease, too: what hangs is to be seen."""
_CONFIRM_S: Final = 1.0
"""Between two looks whether values that were taken are in force."""
_BACKOFF_MIN_S: Final = 1.0
_BACKOFF_RATIO: Final = 0.1
"""Of the lease, at most, before the first request after a fault: it is to be renewed in time."""
_BACKOFF_MAX_S: Final = 30.0
_LAPSE_S: Final = 0.1
"""The lease of what is given back: what the engine was started with decides after it."""
_TOLD_PAUSE_S: Final[dict[KnobEventKind, float]] = {
    "others": 60.0,
    "restarted": 10.0,
    "lapsed": 10.0,
}
"""What may come again and again is told no more often."""
_KNOB: Final = "active_max"
_NOT_TAKEN: Final[frozenset[FaultKind]] = frozenset({"refused", "wrong_token"})
"""After another fault the engine may have taken the request all the same, or take it yet."""

_Values: TypeAlias = tuple[int | None, dict[str, Any] | None]
"""The cap and the step budget's policy; None: the engine's own."""
_NOTHING: Final[_Values] = (None, None)


class KnobSeat:
    """One engine: values that were decided meanwhile are merged, as only the last is ever asked.

    `tell` takes what happened. The owner asks `body` whenever `due_s` has come, sends it, and gives
    the answer to `heard`; never two at a time.
    """

    def __init__(
        self, replica: str, lease_s: float, tell: Callable[[KnobEvent], None], *, step_budget: bool
    ) -> None:
        self.replica, self._lease_s, self._tell = replica, lease_s, tell
        self._step_budget = step_budget
        self.due_s = -math.inf
        self.ended = False
        """Its owner asks no more: set beside a cancellation, which an answer can swallow."""
        self.limit: int | None = None
        """The gateway's limit of all workers; None: nothing is decided, values are given back."""
        self._policy: dict[str, Any] | None = None
        self._held = self._doubtful = _NOTHING
        self._sent: _Values | None = None
        self._document: ControlDocument | None = None
        self._fault: ControlFault | None = None
        self._failures = 0
        self._refused_policy: dict[str, Any] | None = None
        self._answered_s = self._renewed_s = self._leased_s = self._sent_s = -math.inf
        self._told_s: dict[KnobEventKind, float] = {}
        self._clamped = self._unable = ""
        self._restarts = self._lapses = 0
        self._requests: dict[str, int] = {}

    # --- what is decided ----------------------------------------------------------------------

    def decide(self, limit: int | None, slo: Slo, now_s: float) -> None:
        """The gateway's limit is this now, and these are the targets of the engine's model."""
        self.limit = limit
        wants = self._step_budget and limit is not None and slo.itl_s is not None
        self._policy = None
        if wants:
            self._policy = {"budget": "model", "itl_target_s": slo.itl_s}
            if slo.ttft_s is not None:
                self._policy["ttft_target_s"] = slo.ttft_s
        if self._fault is None and self._document is not None and self._differs():
            self.due_s = min(self.due_s, now_s)

    def hasten(self, now_s: float) -> None:
        """The engine came up: perhaps anew. Ask at once."""
        self._failures, self.due_s = 0, now_s

    @property
    def running_max(self) -> int | None:
        """Requests that the engine runs at once, as it was started; None: not told."""
        return None if self._document is None else running_max(self._document)

    @property
    def holds(self) -> bool:
        """The engine has, or may have, values of ours: of a request without an answer, too."""
        return any(
            each not in (None, _NOTHING) for each in (self._held, self._doubtful, self._sent)
        )

    @property
    def answer_max_s(self) -> float:
        """The longest that the owner may wait for an answer."""
        return min(_ANSWER_MAX_S, self._lease_s * _RENEW_RATIO)

    def _wanted(self) -> _Values:
        policy = None if self._policy == self._refused_policy else self._policy
        if self.limit is None or self._document is None:
            return None, policy
        return engine_cap(self.limit, self._document), policy

    def _differs(self) -> bool:
        return self._wanted() != self._held

    # --- what is asked ------------------------------------------------------------------------

    def body(self, now_s: float) -> dict[str, Any] | None:
        """The next request; None: only look."""
        self._give_up()
        self._sent_s = now_s
        wanted, policy = self._wanted()
        if self._document is None or not (self._differs() or self.holds):
            return None
        renew = now_s >= self._renewed_s + self._lease_s * _RENEW_RATIO
        if not (renew or self._differs()):
            return None  # whether it is in force by now
        if wanted is None and policy is None:
            return self.give_back()
        self._sent = (wanted, policy)
        asked: dict[str, Any] = {"knobs": {_KNOB: wanted}, "lease_s": self._lease_s}
        if any(each is not None for each in (policy, self._held[1], self._doubtful[1])):
            asked["policy"] = policy  # the same again leaves what it has learned
        return asked

    def give_back(self) -> dict[str, Any]:
        """A request for the start values, by a lease that runs out: it ends a policy, too, whether
        the engine is known to have it or not. What others have set ends with it, as with each of
        our leases: without one it would stay for ever."""
        self._give_up()
        self._sent = _NOTHING
        return {"knobs": {_KNOB: None}, "lease_s": _LAPSE_S}

    def _give_up(self) -> None:
        """Nobody waits for the last request's answer any more: its values may be in force."""
        sent, self._sent = self._sent, None
        if sent is None or sent == _NOTHING:
            return
        cap, policy = self._doubtful
        self._doubtful = (
            cap if sent[0] is None else sent[0],
            policy if sent[1] is None else sent[1],
        )
        self._renewed_s = -math.inf  # the first request that gets through renews

    def _has_lapsed(self, now_s: float) -> bool:
        return now_s >= self._leased_s + self._lease_s

    # --- what is answered ---------------------------------------------------------------------

    def heard(self, answer: ControlDocument | ControlFault, now_s: float) -> None:
        """The answer to the last request."""
        kind = answer.kind if isinstance(answer, ControlFault) else "ok"
        self._requests[kind] = self._requests.get(kind, 0) + 1
        if isinstance(answer, ControlFault):
            self._failed(answer, now_s)
            return
        known, self._document = self._document, answer
        self._answered_s = now_s
        failed = self._fault is not None
        if failed:
            self._event("answers", "its control answers again", now_s)
        self._fault, self._failures = None, 0
        sent, self._sent = self._sent, None
        if known is not None and known.boot != answer.boot:
            self._restarted(sent, now_s)
        else:
            lapsed = answer.reverted if sent is None else self._has_lapsed(now_s)
            if self._held != _NOTHING and lapsed:
                self._lapses += 1
                self._event("lapsed", "its lease ran out before it was renewed", now_s)
                self._held = _NOTHING
            if sent is not None:
                # What failed may have been taken: then its versions are ours.
                if known is not None and not failed and answer.version != known.version + 1:
                    told = "another one sets its control, too: the last request counts"
                    self._event("others", told, now_s)
                self._held = sent
        if sent is not None:
            self._doubtful = _NOTHING
            # The engine's lease began after this, not only with its answer.
            self._renewed_s = self._leased_s = self._sent_s
        self._notice(answer, now_s)
        self.due_s = self._next_s(answer, now_s)

    def _restarted(self, sent: _Values | None, now_s: float) -> None:
        """Another process answered: it has what this request asked for, and nothing else."""
        self._restarts += 1
        self._event("restarted", "it was started anew: its values are asked again", now_s)
        self._held = _NOTHING if sent is None else sent
        self._refused_policy = None

    def _failed(self, fault: ControlFault, now_s: float) -> None:
        before, self._fault = self._fault, fault
        if before is None or before.kind != fault.kind:
            told = f"{fault.message}; the gateway's own limit holds, and it is asked again"
            self._event("fault", told, now_s)
        sent = self._sent
        if fault.kind in _NOT_TAKEN:
            self._sent = None
        self._give_up()
        if fault.kind == "refused" and sent is not None and sent[1] is not None:
            # It cannot run the policy: the limit is not to go without for that.
            self._refused_policy, self.due_s = sent[1], now_s
            return
        first_s = min(_BACKOFF_MIN_S, self._lease_s * _BACKOFF_RATIO)
        backoff_s = min(_BACKOFF_MAX_S, first_s * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self.due_s = now_s + backoff_s
        self._renewed_s = -math.inf  # the first request that gets through renews

    def _notice(self, document: ControlDocument, now_s: float) -> None:
        """Tell of what the engine cannot do, once."""
        can = document.capabilities.get(_KNOB, "it does not say so")
        unable = "" if can is True else f"{_KNOB}: {can}; the gateway's own limit holds"
        if unable and unable != self._unable:
            self._event("unable", unable, now_s)
        self._unable = unable
        clamp = document.clamped.get(_KNOB) if self._held[0] is not None else None
        clamped = ""
        if clamp is not None:
            clamped = f"{_KNOB} {clamp.asked} was taken as {clamp.applied}: {clamp.reason}"
        if clamped and clamped != self._clamped:
            self._event("clamped", clamped, now_s)
        self._clamped = clamped

    def _next_s(self, document: ControlDocument, now_s: float) -> float:
        if self._differs():
            return now_s
        if document.applied_version < document.version and self.holds:
            return now_s + _CONFIRM_S
        if self.holds:
            return self._renewed_s + self._lease_s * _RENEW_RATIO
        return now_s + self._lease_s

    def _event(self, kind: KnobEventKind, detail: str, now_s: float) -> None:
        if now_s < self._told_s.get(kind, -math.inf) + _TOLD_PAUSE_S.get(kind, 0.0):
            return
        self._told_s[kind] = now_s
        self._tell(KnobEvent(at_s=now_s, replica=self.replica, kind=kind, detail=detail))

    # --- for people ---------------------------------------------------------------------------

    def status(self, now_s: float) -> KnobStatus:
        """How it stands."""
        document, fault = self._document, self._fault
        answered_s = self._answered_s
        return KnobStatus(
            replica=self.replica,
            state=self._state(),
            limit=self.limit,
            asked=self._held[0],
            requested=None if document is None else document.requested.active_max,
            applied=None if document is None else document.applied.active_max,
            start=None if document is None else document.start.active_max,
            running_max=self.running_max,
            version=None if document is None else document.version,
            applied_version=None if document is None else document.applied_version,
            boot=None if document is None else document.boot,
            ranks=None if document is None else len(document.ranks),
            clamped=None if document is None else document.clamped.get(_KNOB),
            gaps={} if document is None else _gaps(document),
            step_budget=None if document is None else document.policy,
            lease_s=self._lease_s,
            lease_left_s=None if document is None else document.lease_left_s,
            answered_ago_s=None if math.isinf(answered_s) else round(now_s - answered_s, 3),
            error=None if fault is None else fault.message,
            error_kind=None if fault is None else fault.kind,
            requests_total=dict(self._requests),
            restarts_total=self._restarts,
            lapses_total=self._lapses,
        )

    def _state(self) -> KnobState:
        if self._fault is not None:
            return "fault"
        if self._document is None:
            return "asking"
        if self._held != _NOTHING:
            return "held"
        return "unable" if self._unable else "idle"


def _gaps(document: ControlDocument) -> dict[str, str]:
    told = document.capabilities
    return {name: str(told.get(name)) for name in KNOBS if told.get(name) is not True}
