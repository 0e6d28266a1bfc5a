"""A watched engine tells all of its steps, and does what it does when nobody looks."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.costmodel.step_table import StepTable
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine import Engine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import AdaptersConfig, SpeculationConfig, StaticBatchConfig
from mileage.sim.make_engine import make_single
from mileage.sim.sequence import Sequence
from mileage.sim.step_log import StepPart, Stretch
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((0.012, 0.0, 3e-6, 0.0, 0.0), (0.002, 4e-4, 1e-6, 6e-5, 2e-8))
_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "noisy": {"noise_ratio": 0.1},
    "ordered": {"prefill": PrefillConfig()},
    "static": {"static_batch": StaticBatchConfig(size=4)},
    "speculative": {"speculation": SpeculationConfig(draft_tokens=3)},
    "adapters": {"adapters": AdaptersConfig(slots=1)},
}


def _arrivals(seed: int, count: int = 40) -> list[tuple[float, Sequence]]:
    random, arrivals, now_s = Random(seed), [], 0.0
    for number in range(count):
        now_s += random.expovariate(20.0)
        stem = random.randint(0, 2) * 100
        prompt = random.randint(1, 200)
        keys = tuple(range(stem, stem + prompt // 32))
        sequence = Sequence(number, prompt, random.randint(0, 80), keys, 32)
        sequence.adapter = random.choice((None, "a", "b"))
        arrivals.append((now_s, sequence))
    return arrivals


def _watched(config: EngineConfig, arrivals: list[tuple[float, Sequence]]) -> tuple[Any, ...]:
    seen: list[Stretch] = []

    def make(config: EngineConfig, table: StepTable, random: Random) -> Engine:
        engine = make_single(config, table, random)
        engine.on_stretch = seen.append
        return engine

    return run_engine(config, _TABLE, arrivals, make=make), seen


def _config(**more: Any) -> EngineConfig:
    plain = EngineConfig(kv_blocks=60, running_max=8, step_tokens_max=128)
    return msgspec.structs.replace(plain, **more)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(sorted(_KINDS)))
def test_steps_add_up_to_what_the_engine_did(seed: int, kind: str) -> None:
    engine, seen = _watched(_config(**_KINDS[kind]), _arrivals(seed))
    parts = [p for s in seen for i in range(len(s.times_s)) for p in s.parts_of(i)]
    assert sum(float(s.times_s.sum()) for s in seen) == pytest.approx(engine.busy_s, rel=1e-9)
    assert sum(len(s.times_s) for s in seen) == engine.batch.steps
    assert sum(p.prefill_tokens for p in parts) == engine.prefill_tokens
    if kind != "static":  # of a batch the first tokens come out later, and others never
        assert sum(p.output_tokens for p in parts) == engine.output_tokens
        assert sum(p.decode_tokens for p in parts) == engine.decode_tokens
    for before, after in itertools.pairwise(seen):
        assert after.begun_s >= before.ends_s[-1] - 1e-9
    assert all(len({p.request_id for p in s.parts}) == len(s.parts) for s in seen)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["plain", "ordered", "static"]))
def test_a_step_takes_what_its_parts_take(seed: int, kind: str) -> None:
    _, seen = _watched(_config(**_KINDS[kind]), _arrivals(seed))
    for stretch in seen:
        for step, took_s in enumerate(stretch.times_s):
            parts = list(stretch.parts_of(step))
            decoding = [p for p in parts if p.decode_tokens]
            chunks = [(p.context_tokens, p.prefill_tokens) for p in parts if p.prefill_tokens]
            told_s = _TABLE.step_s(
                len(decoding),
                sum(p.context_tokens for p in decoding),
                sum(chunk for _, chunk in chunks),
                sum(chunk * past + chunk * (chunk + 1) / 2 for past, chunk in chunks),
            )
            assert took_s == pytest.approx(told_s, rel=1e-9)


@pytest.mark.parametrize("kind", sorted(_KINDS))
def test_who_looks_changes_nothing(kind: str) -> None:
    config = _config(**_KINDS[kind])
    watched, _ = _watched(config, _arrivals(7))
    alone = run_engine(config, _TABLE, _arrivals(7))
    assert (watched.busy_s, watched.batch.steps, watched.preemptions) == (
        alone.busy_s,
        alone.batch.steps,
        alone.preemptions,
    )


def test_what_a_preemption_lost_is_told_when_it_is_computed_anew() -> None:
    # Two prompts of 4 blocks, and room for 9: the second gives way at its 17th token.
    arrivals = [(0.0, Sequence(1, 64, 40)), (0.0, Sequence(2, 64, 40))]
    engine, seen = _watched(_config(kv_blocks=9), arrivals)
    assert engine.preemptions == 1
    again = [p for s in seen for p in s.parts if p.recomputed_tokens]
    # What it had in the cache is computed anew; its latest token had not been in it yet.
    assert again == [StepPart(2, 65, 0, 0, 64, 1)]


@pytest.mark.parametrize("kind", ["plain", "ordered", "noisy"])
def test_without_what_was_computed_anew_each_request_is_computed_once(kind: str) -> None:
    random = Random(3)
    arrivals = [
        (number * 0.05, Sequence(number, random.randint(1, 200), random.randint(1, 80)))
        for number in range(40)
    ]
    engine, seen = _watched(_config(kv_blocks=20, **_KINDS[kind]), arrivals)
    assert engine.preemptions > 0
    new: Counter[int] = Counter()
    for stretch in seen:
        for step in range(len(stretch.times_s)):
            for part in stretch.parts_of(step):
                tokens = part.prefill_tokens + part.decode_tokens
                new[part.request_id] += tokens - part.recomputed_tokens
    # The last token of an answer is never put in.
    assert new == {s.id: s.prompt_tokens + s.output_tokens - 1 for _, s in arrivals}
