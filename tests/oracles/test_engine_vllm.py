"""The engine against vLLM's own scheduler: when every request's tokens come, in steps."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import Sequence
from tests.support.engine_host import linear_table, run_engine

pytestmark = pytest.mark.heavy

_SCRIPT = Path(__file__).resolve().parents[1] / "support" / "vllm_schedule.py"
_TIMEOUT_S = 300.0
_ONE_SECOND = linear_table((1.0, 0.0, 0.0, 0.0, 0.0))
_REQUESTS = 40

Job = tuple[int, tuple[int, ...], int, int]
"""The step before which it comes, keys of its full blocks, its prompt's and its answer's tokens."""


def _config(random: Random, *, caching: bool) -> EngineConfig:
    running = random.choice((2, 8, 32))
    step = random.choice((max(32, running), 256))
    return EngineConfig(
        # With a cache none is to give way: what it had generated is found again there, not here.
        kv_blocks=random.choice((800, 1600) if caching else (20, 30, 60)),
        running_max=running,
        step_tokens_max=step,
        block_tokens=16,
        # Such that prompts never use up the budget: there the order of a step differs.
        long_prefill_tokens_max=(random.choice((None, 20)) if step >= 21 * running else None),
        prefix_cache=caching,
    )


def _jobs(random: Random, config: EngineConfig) -> list[Job]:
    jobs, at = [], 0
    most = config.kv_blocks * config.block_tokens
    stems = [[random.getrandbits(24) for _ in range(12)] for _ in range(4)]
    for index in range(_REQUESTS):
        at += random.choice((0, 0, 1, 3, 20) if config.prefix_cache else (0, 0, 0, 1, 3))
        prompt = min(random.choice((random.randint(1, 40), random.randint(1, 250))), most // 2)
        output = min(random.choice((1, 2, random.randint(3, 120))), most // 2)
        stem = random.choice(stems)[: random.randint(0, 12)]
        keys = (*stem, *range(2**25 + index * 20, 2**25 + index * 20 + 20))
        jobs.append((at, keys[: prompt // 16], prompt, output))
    return jobs


def _document(config: EngineConfig, jobs: list[Job]) -> dict[str, Any]:
    requests = []
    for index, (at, keys, prompt, output) in enumerate(jobs):
        tokens = [key * 16 + i for key in keys for i in range(16)]
        tokens += [2**29 - 1 - index * 16 - i for i in range(prompt - len(tokens))]
        requests.append([at, tokens, output])
    return {"config": msgspec.to_builtins(config), "requests": requests}


def _simulated(config: EngineConfig, jobs: list[Job]) -> list[dict[str, Any]]:
    sequences = [
        Sequence(i, prompt, output, keys, 16) for i, (_, keys, prompt, output) in enumerate(jobs)
    ]
    arrivals = [(float(job[0]), each) for job, each in zip(jobs, sequences, strict=True)]
    run_engine(config, _ONE_SECOND, arrivals, check=True)
    return [
        {
            "first": round(each.first_token_s),
            "last": round(each.finished_s),
            "cached_tokens": each.cached_tokens,
            "preemptions": each.preemptions,
        }
        for each in sequences
    ]


def test_tokens_come_in_the_steps_in_which_vllm_computes_them(vllm_python: Path) -> None:
    cases = []
    for seed in range(40):
        random = Random(seed)
        config = _config(random, caching=seed % 2 == 0)
        cases.append((config, _jobs(random, config)))
    documents = [_document(config, jobs) for config, jobs in cases]
    ended = subprocess.run(
        [str(vllm_python), str(_SCRIPT)],
        input=json.dumps(documents).encode(),
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:].decode(errors="replace")
    results = json.loads(ended.stdout.splitlines()[-1])
    preemptions = cached = 0
    for (config, jobs), theirs in zip(cases, results, strict=True):
        ours = _simulated(config, jobs)
        for each, real in zip(ours, theirs, strict=True):
            assert each == {
                "first": real["tokens_at"][0],
                "last": real["tokens_at"][-1],
                "cached_tokens": real["cached_tokens"],
                "preemptions": real["preemptions"],
            }, (config, jobs)
            preemptions += each["preemptions"]
            cached += each["cached_tokens"] > 0
    assert preemptions > 20
    assert cached > 50
