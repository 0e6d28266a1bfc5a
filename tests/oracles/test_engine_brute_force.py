"""The engine's closed forms against a naive engine: every request's times, step by step."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import GONE, Sequence
from tests.support.engine_host import linear_table, run_engine
from tests.support.reference_engine import Job, ReferenceEngine

_ONE = linear_table((0.010, 1e-4, 2e-6, 5e-5, 1e-8))
_TWO = linear_table((0.012, 0.0, 3e-6, 0.0, 0.0), (0.002, 4e-4, 1e-6, 6e-5, 2e-8))
_STEEP = linear_table((0.010, 1e-4, 0.0, 5e-5, 0.0), (0.0, 0.0, 5e-5, 0.0, 0.0))
TABLES = {"one line": _ONE, "two lines": _TWO, "lines that cross": _STEEP}


def _jobs(random: Random, config: EngineConfig, count: int) -> list[Job]:
    rate = random.choice((2.0, 10.0, 40.0))
    burst = random.random() < 0.3
    block, most = config.block_tokens, config.kv_blocks * config.block_tokens
    unit = block * random.choice((1, 1, 3))
    jobs, now_s = [], 0.0
    stems = [[random.getrandbits(32) for _ in range(40)] for _ in range(3)]
    for _ in range(count):
        now_s += 0.0 if burst and random.random() < 0.6 else random.expovariate(rate)
        prompt = min(random.choice((random.randint(1, 30), random.randint(1, 300))), most - 1)
        output = min(random.choice((0, 1, 2, random.randint(3, 150))), most - prompt + 1)
        keys: tuple[int, ...] = ()
        if random.random() < 0.7:
            stem = random.choice(stems)[: random.randint(1, 40)]
            own = [random.getrandbits(32) for _ in range(40)]
            keys = tuple((stem + own)[: prompt // unit])
        jobs.append(Job(now_s, prompt, output, keys, unit))
    return jobs


def _config(random: Random) -> EngineConfig:
    running = random.choice((1, 2, 5, 16, 64))
    return EngineConfig(
        kv_blocks=random.choice((6, 12, 40, 150, 2000)),
        running_max=running,
        step_tokens_max=random.choice((max(running, 16), max(running, 64), 512)),
        block_tokens=random.choice((4, 16)),
        long_prefill_tokens_max=random.choice((None, None, 5, 40)),
        prefix_cache=random.random() < 0.6,
        whole_prompt_fits=random.random() < 0.7,
        watermark_ratio=random.choice((0.0, 0.0, 0.05)),
    )


def _compare(config: EngineConfig, table: StepTable, jobs: list[Job]) -> tuple[int, int]:
    reference = ReferenceEngine(config, table)
    sequences = [
        Sequence(i, job.prompt_tokens, job.output_tokens, job.keys, job.unit_tokens)
        for i, job in enumerate(jobs)
    ]
    reference.run(jobs)
    arrivals = [(job.arrived_s, each) for job, each in zip(jobs, sequences, strict=True)]
    engine = run_engine(config, table, arrivals, check=True)
    for job, each in zip(jobs, sequences, strict=True):
        close = pytest.approx
        assert each.state == GONE
        assert each.produced == job.output_tokens
        assert each.preemptions == job.preemptions
        assert each.cached_tokens == job.cached_tokens
        assert each.first_token_s - job.arrived_s == close(job.ttft_s, rel=1e-9)
        assert each.finished_s == close(job.finished_s, rel=1e-9)
        gaps = job.gaps_s
        assert each.itl_p99_s == close(job.itl_p99_s, rel=1e-9, nan_ok=True)
        mean_s = sum(gaps) / len(gaps) if gaps else math.nan
        assert each.itl_mean_s == close(mean_s, rel=1e-9, nan_ok=True)
    assert engine.batch.steps == reference.steps
    assert engine.busy_s == pytest.approx(reference.busy_s, rel=1e-9)
    assert engine.pool.free == config.kv_blocks
    assert engine.output_tokens == sum(job.output_tokens for job in jobs)
    return engine.preemptions, engine.pool.hit_tokens


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), table=st.sampled_from(sorted(TABLES)))
def test_each_request_fares_as_in_a_naive_engine(seed: int, table: str) -> None:
    random = Random(seed)
    config = _config(random)
    _compare(config, TABLES[table], _jobs(random, config, 30))


def test_the_comparison_covers_preemption_and_the_prefix_cache() -> None:
    preempted = hit = 0
    for seed in range(40):
        random = Random(seed)
        config = _config(random)
        preemptions, hits = _compare(config, _TWO, _jobs(random, config, 30))
        preempted += preemptions > 0
        hit += hits > 0
    assert preempted >= 5
    assert hit >= 5
