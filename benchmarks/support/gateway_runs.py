"""What a run of the gateway benchmark measured, and whether it can be believed."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from benchmarks.support.mileage import LedgerTotals
from benchmarks.support.payloads import ANSWER_TOKENS
from benchmarks.support.rounds import EVENTS, LatencyRound, PacedRound, Round
from benchmarks.support.stacks import Stack
from benchmarks.support.watch import disturbances

__all__ = ["Runs"]

AnyRound = Round | LatencyRound | PacedRound
UPSTREAM_MARGIN = 1.5
"""The upstream alone must be this many times as fast as the gateway, or it may be the limit."""


class Runs:
    """The rounds by stack name, and what must be true of the run as a whole."""

    def __init__(self) -> None:
        self.whole: dict[str, list[Round]] = defaultdict(list)
        self.streams: dict[str, list[Round]] = defaultdict(list)
        self.latency: dict[str, list[LatencyRound]] = defaultdict(list)
        self.paced: dict[str, list[PacedRound]] = defaultdict(list)
        self.versions: dict[str, str] = {}
        self.policies: dict[str, float] = {}
        self.best_policy = ""
        self.failures: list[str] = []
        self.competitor_errors: list[str] = []
        self.sent = self.streamed = self.cut_off = 0
        self.ledger: LedgerTotals | None = None
        self.counted = 0

    @property
    def router(self) -> str:
        """Name of vllm-router with its best policy."""
        return f"vllm-router {self.best_policy}"

    def note_stacks(self, best_policy: str, *stacks: Stack) -> None:
        """Remember what takes part."""
        self.best_policy = best_policy
        self.versions = {stack.name.split()[0]: stack.version for stack in stacks}

    def add_whole(self, stack: Stack, measured: Round, *, counted: bool) -> None:
        """A round of whole answers; a warm-up is not counted, its requests and errors are."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.completed
            self.cut_off += measured.cut_off
        if counted:
            self.whole[stack.name].append(measured)

    def add_streams(self, stack: Stack, measured: Round, *, counted: bool) -> None:
        """A round of streams."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.completed
            self.streamed += measured.completed
        if counted:
            self.streams[stack.name].append(measured)

    def add_latency(self, stack: Stack, measured: LatencyRound, *, counted: bool) -> None:
        """A round at a constant rate."""
        self._note(stack, measured)
        if stack.name == "mileage":
            self.sent += measured.sent
        if counted:
            self.latency[stack.name].append(measured)

    def add_paced(self, stack: Stack, measured: PacedRound) -> None:
        """A round of paced streams."""
        self._note(stack, measured)
        self.paced[stack.name].append(measured)

    def _note(self, stack: Stack, measured: AnyRound) -> None:
        if measured.errors:
            text = f"{stack.name}: {measured.errors} errors, the first: {measured.first_error}"
            mine = stack.name == "mileage"
            (self.failures if mine else self.competitor_errors).append(text)

    def note_ledger(self, totals: LedgerTotals, counted: int) -> None:
        """Check the ledger and the metrics against what was sent."""
        self.ledger, self.counted = totals, counted
        if not self.sent <= totals.total <= self.sent + self.cut_off:
            self.failures.append(
                f"the ledger has {totals.total} rows for {self.sent} requests "
                f"(and up to {self.cut_off} cut off)"
            )
        if counted != totals.total:
            self.failures.append(f"metrics count {counted} requests, the ledger {totals.total}")
        tokens = (self.sent - self.streamed) * ANSWER_TOKENS + self.streamed * (EVENTS - 1)
        if totals.output_tokens < tokens:
            self.failures.append(f"{totals.output_tokens} output tokens metered, {tokens} served")

    def invalid(self) -> list[str]:
        """Why the run says nothing, if so."""
        reasons = list(self.competitor_errors)
        for what, rounds in (("whole answers", self.whole), ("streams", self.streams)):
            for name in ("mileage", self.router):
                limited = [r.generator_limited for r in rounds.get(name, ())]
                if sum(limited) * 2 > len(limited):
                    reasons.append(f"{what}: generator and upstream are the limit, not {name}")
            ours, direct = (
                median([r.per_s for r in rounds.get(name, ())] or [0.0])
                for name in ("mileage", "direct")
            )
            if direct < UPSTREAM_MARGIN * ours:
                reasons.append(
                    f"{what}: the upstream alone is not {UPSTREAM_MARGIN}x as fast as the gateway"
                )
        return reasons

    def doubts(self) -> list[str]:
        """What disturbed the run."""
        rounds: list[AnyRound] = [
            *(r for rs in self.whole.values() for r in rs),
            *(r for rs in self.streams.values() for r in rs),
            *(r for rs in self.latency.values() for r in rs),
        ]
        return disturbances(measured.use for measured in rounds)
