"""One policy, two hosts: the simulator's engine and vLLM's plugin ask it the same, and obey it."""

from __future__ import annotations

import math
from random import Random
from typing import Any, NamedTuple

import pytest

from mileage.core.slo import Slo
from mileage.policy.budget.choose import make_budget
from mileage.policy.budget.model import ModelBudgetConfig
from mileage.policy.budget.policy import BudgetPolicy, Pending, StepLoad
from mileage.policy.prefill import PrefillConfig
from mileage.sim import prefill_plan
from mileage.sim.engine_config import EngineConfig
from mileage.sim.ordered_engine import OrderedEngine
from mileage.sim.sequence import DECODING, PREFILLING, WAITING, Sequence
from mileage.vllm_plugin import policy_host as plugin
from mileage.vllm_plugin.policy_settings import PolicySettings
from tests.support.engine_host import linear_table, run_engine
from tests.support.toy_scheduler import ToyRequest, ToyScheduler, output_of, policy_host

STEP_TOKENS_MAX = 1024
ITL_S = 0.04
# Steps that only decode take the same time each: a stretch of them is as good as its mean.
TABLE = linear_table((0.01, 0.0, 0.0, 1e-4, 2e-9), requests_max=200, tokens_max=2048)


class Asked(NamedTuple):
    """All that a budget was told and asked, and its answer."""

    now_s: float
    load: tuple[int, int, int]
    pending: list[Pending]
    spare: list[int]
    past: list[tuple[int, float]]
    tokens: int


class Watched:
    """A budget that keeps what it is asked."""

    def __init__(self, policy: BudgetPolicy) -> None:
        self._policy = policy
        self.asked: list[Asked] = []

    @property
    def again_s(self) -> float:
        return self._policy.again_s

    def tokens(self, load: StepLoad, pending: list[Pending], now_s: float) -> int:
        spare, past = list(load.spare_gaps()), list(load.past())
        tokens = self._policy.tokens(load, pending, now_s)
        self.asked.append(Asked(now_s, load[:3], list(pending), spare, past, tokens))
        return tokens

    def learn(self, *step: Any) -> None:
        self._policy.learn(*step)

    def alone_s(self, tokens: int, before: int) -> float:
        return self._policy.alone_s(tokens, before)


class Mirrored(OrderedEngine):
    """Shows all that it does to the plugin's host, as a scheduler of vLLM would."""

    def attach(self, settings: PolicySettings) -> None:
        """Begin to."""
        self.scheduler = ToyScheduler(step_tokens_max=STEP_TOKENS_MAX, running_max=200)
        self.host = policy_host(self.scheduler, settings)
        self.here: dict[int, Sequence] = {}
        self.started: set[int] = set()
        self.bounded = 0

    def add(self, sequence: Sequence, now_s: float) -> bool:
        self.here[sequence.id] = sequence
        return super().add(sequence, now_s)

    def begin(self, now_s: float) -> None:
        scheduler, made = self.scheduler, self._as_vllm()
        scheduler.running = [r for r in made if r.status.name == "RUNNING"]
        scheduler.waiting.clear()
        scheduler.waiting.extend(r for r in made if r.status.name == "WAITING")
        scheduler.requests = {request.request_id: request for request in made}
        self.host.begin(now_s, 0.0)
        super().begin(now_s)
        if scheduler.max_num_scheduled_tokens < STEP_TOKENS_MAX:
            self.bounded += 1
            tokens = self.batch.count + sum(chunk for _, chunk in self._chunks)
            assert tokens <= scheduler.max_num_scheduled_tokens

    def _as_vllm(self) -> list[ToyRequest]:
        made = []
        order = sorted(self.here.values(), key=lambda s: (s.state != DECODING, s.arrived_s, s.id))
        for sequence in order:
            request = ToyRequest(
                str(sequence.id), sequence.prompt_tokens, sequence.output_tokens, sequence.arrived_s
            )
            if sequence.state == DECODING:
                request.status.name = "RUNNING"
                request.num_computed_tokens = sequence.base + self.batch.steps
                request.num_output_tokens = request.num_computed_tokens - sequence.prompt_tokens + 1
            elif sequence.state == PREFILLING:
                request.status.name = "RUNNING"
                request.num_computed_tokens, request.is_prefill_chunk = sequence.computed, True
            elif sequence.state != WAITING:
                del self.here[sequence.id]
                continue
            made.append(request)
        return made

    def finish_steps(self, now_s: float) -> None:
        steps, begun_s = self._planned, self._begun_s
        for step in range(steps):
            took_s = (now_s - begun_s) / steps
            ended_s = now_s if step == steps - 1 else begun_s + (step + 1) * took_s
            self.host.ended(self._output(step), ended_s - took_s, ended_s, took_s)
        super().finish_steps(now_s)

    def _output(self, step: int) -> Any:
        new, cached = [], []
        for sequence in self.running:
            if sequence.state == DECODING:
                context = sequence.base + self.batch.steps + step
                cached.append((str(sequence.id), context, 1, 1))
        for sequence, chunk in self._chunks:
            if sequence.id in self.started:
                cached.append((str(sequence.id), sequence.computed, chunk, 0))
            else:
                self.started.add(sequence.id)
                new.append((str(sequence.id), sequence.computed, chunk))
        return output_of(new, cached)


def requests_of(seed: int) -> list[tuple[float, Sequence]]:
    """Short prompts, long ones, and bursts."""
    random = Random(seed)
    found, at_s = [], 0.0
    for index in range(150):
        at_s += random.choice((0.001, 0.02, 0.3, 0.6))
        prompt = random.randint(1500, 6000) if random.random() < 0.2 else random.randint(8, 300)
        sequence = Sequence(index, prompt, random.randint(2, 80))
        sequence.arrived_s = at_s
        found.append((at_s, sequence))
    return found


@pytest.mark.parametrize("itl", ["p99", "mean"])
@pytest.mark.parametrize("ttft_s", [0.5, 3.0, None])
def test_both_hosts_decide_the_same(
    monkeypatch: pytest.MonkeyPatch, itl: Any, ttft_s: float | None
) -> None:
    watched: list[Watched] = []

    def make(*args: Any) -> Watched:
        watched.append(Watched(make_budget(*args)))
        return watched[-1]

    monkeypatch.setattr(prefill_plan, "make_budget", make)
    monkeypatch.setattr(plugin, "make_budget", make)
    model = ModelBudgetConfig(itl=itl)
    slo = Slo(ttft_s=ttft_s, itl_s=ITL_S)
    settings = PolicySettings(budget="model", itl_target_s=ITL_S, ttft_target_s=ttft_s, model=model)

    def engine_of(*args: Any) -> Mirrored:
        engine = Mirrored(*args)
        engine.attach(settings)
        return engine

    config = EngineConfig(
        kv_blocks=100_000,
        running_max=200,
        step_tokens_max=STEP_TOKENS_MAX,
        prefill=PrefillConfig(ordering="fcfs", budget="model", slo=slo, model=model),
    )
    engine = run_engine(config, TABLE, requests_of(seed=1), make=engine_of)
    assert isinstance(engine, Mirrored)
    simulated, inside = (each.asked for each in watched)
    assert len(simulated) == len(inside) > 100
    for ours, theirs in zip(simulated, inside, strict=True):
        assert theirs.now_s == ours.now_s
        assert theirs.load == ours.load
        assert theirs.spare == ours.spare
        assert theirs.past == ours.past
        assert theirs.tokens == ours.tokens
        # The plugin looks no further than what can be in a step.
        assert theirs.pending == ours.pending[: len(theirs.pending)]
        whole = len(theirs.pending) == len(ours.pending)
        assert whole or sum(each.tokens for each in theirs.pending) >= ours.load[2]
    assert engine.bounded > 50
    if ttft_s is not None:
        assert any(each.pending[0].deadline_s < math.inf for each in inside)
