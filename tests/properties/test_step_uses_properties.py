"""Whatever a scheduler does, uses are its tokens, and a step's shares sum to its time exactly."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_record import STEP_LENGTH, row_record
from mileage.ledger.step_shares import shares_of_steps, uses_of
from mileage.vllm_plugin.step_uses import StepUses
from tests.support.scheduler_outputs import Part, step_output
from tests.support.step_records import decoded

RATIOS = (0.7, 0.3, 0.0)


@dataclass
class Request:
    name: str
    prompt: int
    cached: int
    computed: int = 0
    outputs: int = 0
    begun: bool = False
    preempted: bool = False
    lost: int = 0
    """Tokens that preemptions took which were computed again later."""
    high: int = 0


class Engine:
    """Schedules by chance: chunks, hits of the prefix cache, preemptions, refused drafts."""

    def __init__(self, seed: int, requests: int, drafts: int) -> None:
        self.dice = random.Random(seed)
        self.drafts = drafts
        self.waiting = [
            Request(f"r{n}", prompt := self.dice.randint(1, 60), self.dice.randint(0, prompt - 1))
            for n in range(requests)
        ]
        self.ended: list[str] = []
        self.computed: Counter[str] = Counter()

    def step(self) -> tuple[list[Part], tuple[str, ...]]:
        finished, self.ended = tuple(self.ended), []
        parts = []
        for request in list(self.waiting):
            chance = self.dice.random()
            if chance < 0.3 and request.begun:
                continue
            if chance > 0.9 and request.begun and not request.preempted:
                request.preempted = True
                request.high = max(request.high, request.computed)
                request.computed = 0
                continue
            parts.append(self._part(request))
        return parts, finished

    def _part(self, request: Request) -> Part:
        new, resumed = not request.begun, request.preempted
        if new:
            request.computed = request.cached
        elif resumed:
            request.computed = self.dice.randint(0, request.high)
        request.begun, request.preempted = True, False
        context, known = request.computed, request.prompt + request.outputs
        left = known - context
        drafts = self.dice.randint(0, self.drafts) if left == 1 and request.outputs else 0
        tokens = self.dice.randint(1, left) + drafts
        request.lost += max(0, min(context + tokens, request.high) - context)
        if context + tokens >= request.high:
            request.high = 0
        self.computed[request.name] += tokens
        part = Part(
            request.name,
            context,
            tokens,
            prompt=request.prompt if new else None,
            outputs=request.outputs,
            resumed=resumed,
        )
        taken = self.dice.randint(0, drafts)
        request.computed = context + tokens - drafts + taken
        if context + tokens - drafts == known:
            request.outputs += 1 + taken
            if self.dice.random() < 0.1:
                self.waiting.remove(request)
                self.ended.append(request.name)
        return part


@given(seed=st.integers(0, 1 << 32), requests=st.integers(1, 6), drafts=st.sampled_from([0, 3]))
def test_uses_are_what_was_scheduled_and_shares_sum(seed: int, requests: int, drafts: int) -> None:
    engine = Engine(seed, requests, drafts)
    everyone = {request.name: request for request in engine.waiting}
    uses = StepUses(lambda name: int(name[1:]))
    steps: list[EngineStep] = []
    sums: dict[int, Counter[str]] = {}
    for number in range(60):
        parts, finished = engine.step()
        rows = uses.rows(step_output(*parts, finished=finished))
        assert [row[1] + row[2] for row in sorted(rows)] == [
            part.tokens for part in sorted(parts, key=lambda part: part.name)
        ]
        steps.append(
            decoded(row_record("a", number * 1000, 777 + number, rows)[STEP_LENGTH.size :])
        )
    for step in steps:
        for use in step.uses:
            assert 0 <= use.recomputed_tokens <= use.prefill_tokens
            sums.setdefault(use.request_id, Counter()).update(
                prefill=use.prefill_tokens, decode=use.decode_tokens, again=use.recomputed_tokens
            )
    for name, request in everyone.items():
        total = sums.get(int(name[1:]), Counter())
        assert total["prefill"] + total["decode"] == engine.computed[name]
        assert total["again"] == request.lost
        if request.outputs:
            assert total["prefill"] - total["again"] == request.prompt - request.cached
    told = uses_of(steps)
    gpu_ns = np.array([step.duration_ns for step in steps], dtype=np.int64)
    shares, prefill, recomputed = shares_of_steps(told, gpu_ns, None, RATIOS, 4.0)
    by_step = np.bincount(told.steps, weights=shares, minlength=len(steps)).astype(np.int64)
    with_uses = np.bincount(told.steps, minlength=len(steps)) > 0
    assert (by_step == np.where(with_uses, gpu_ns, 0)).all()
    assert (recomputed <= prefill).all()
    assert (prefill <= shares).all()
