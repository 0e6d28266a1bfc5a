"""ExperimentCanary: how much traffic arm b gets now: step by step more, or none any more."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mileage.policy.experiment_evidence import ArmCounts, ExperimentEvidence, since

__all__ = ["CanaryConfig", "CanaryState", "CanaryStatus", "ExperimentCanary"]

CanaryStatus: TypeAlias = Literal["running", "rolled_back", "promoted"]

_CALM_MAX = 4.0
"""With more evidence against arm b than this it gets no more traffic for the time being."""

_SHOWN = {
    "errors": "more of its requests fail",
    "targets": "more of its requests miss their targets",
    "ttft": "its first tokens come later",
    "itl": "its tokens come slower",
    "e2e": "its answers take longer",
}


class CanaryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a canary goes by. `acts` False: evidence is gathered, the ratio stays `steps[0]`.
    `grouped`: requests were not dealt each by itself (see ExperimentEvidence)."""

    steps: tuple[float, ...]
    requests_min: int
    time_min_s: float
    false_alarm_ratio: float
    tolerance_ratio: float
    block_requests_min: int
    block_s: float
    acts: bool = True
    grouped: bool = False


class CanaryState(msgspec.Struct, frozen=True, kw_only=True):
    """Where it stands; `reason` says for people how it came there."""

    status: CanaryStatus
    step: int
    ratio: float
    reason: str


class ExperimentCanary:
    """Looks at both arms' totals from time to time, and decides how arm b goes on.

    Pure: totals and the time come in. Totals may only grow; those of its first look are where it
    begins. Blocks of time are compared, each at least `block_s` long and with `block_requests_min`
    requests of each arm (see ExperimentEvidence). Once the evidence against arm b reaches
    1 / `false_alarm_ratio` it is rolled back for good; where all its replicas are down, at once.
    A step is over after `requests_min` of b's requests and `time_min_s`, if nothing is suspicious;
    the last step's end promotes b.
    """

    def __init__(
        self, config: CanaryConfig, now_s: float, state: CanaryState | None = None
    ) -> None:
        self._config = config
        self.evidence = self._no_evidence()
        begun = CanaryState(status="running", step=0, ratio=config.steps[0], reason="begun")
        self.state = state or begun
        self._seen_up = False
        self._block: tuple[ArmCounts, ArmCounts] | None = None
        self._block_s = now_s
        self._step_s = now_s
        self._step_requests: int | None = None

    def update(self, a: ArmCounts, b: ArmCounts, now_s: float, *, b_up: bool | None) -> CanaryState:
        """Take in both arms' totals; `b_up`: any of b's replicas is up, None: it has none of its
        own, or nothing is known of them."""
        if self._block is None:
            self._block, self._block_s = (a, b), now_s
        self._seen_up = self._seen_up or bool(b_up)
        self._compare(a, b, now_s)
        if self._config.acts and self.state.status != "rolled_back":
            self._decide(b, now_s, down=self._seen_up and b_up is False)
        return self.state

    def promote(self, ratio: float, reason: str) -> None:
        """Arm b gets this share by order. What spoke against it so far was known: only what comes
        from now on can roll it back."""
        self.evidence = self._no_evidence()
        self.state = msgspec.structs.replace(
            self.state, status="promoted", ratio=ratio, reason=reason
        )

    def _no_evidence(self) -> ExperimentEvidence:
        config = self._config
        return ExperimentEvidence(tolerance_ratio=config.tolerance_ratio, grouped=config.grouped)

    def _compare(self, a: ArmCounts, b: ArmCounts, now_s: float) -> None:
        config = self._config
        assert self._block is not None
        if now_s - self._block_s < config.block_s:
            return
        of_a, of_b = since(a, self._block[0]), since(b, self._block[1])
        if min(of_a.requests, of_b.requests) >= config.block_requests_min:
            self.evidence.block(of_a, of_b)
            self._block, self._block_s = (a, b), now_s

    def _decide(self, b: ArmCounts, now_s: float, *, down: bool) -> None:
        config, state, evidence = self._config, self.state, self.evidence
        if down:
            self._roll_back("all replicas of arm b are down")
            return
        if evidence.value >= 1.0 / config.false_alarm_ratio:
            why = _SHOWN[evidence.worst]
            self._roll_back(
                f"arm b is worse: {why} (evidence {evidence.value:.0f} to 1 "
                f"after {evidence.blocks} blocks)"
            )
            return
        if state.status == "promoted":
            return
        if self._step_requests is None:
            self._step_requests, self._step_s = b.requests, now_s
        seen, took_s = b.requests - self._step_requests, now_s - self._step_s
        if seen < config.requests_min or took_s < config.time_min_s or evidence.value > _CALM_MAX:
            return
        step = state.step + 1
        told = f"not worse after {seen} requests in {took_s:.0f} s at {state.ratio:.0%}"
        self._step_requests, self._step_s = b.requests, now_s
        if step == len(config.steps):
            self.state = msgspec.structs.replace(
                state, status="promoted", ratio=config.steps[-1], reason=told
            )
        else:
            self.state = CanaryState(
                status="running", step=step, ratio=config.steps[step], reason=told
            )

    def _roll_back(self, reason: str) -> None:
        self.state = msgspec.structs.replace(
            self.state, status="rolled_back", ratio=0.0, reason=reason
        )
