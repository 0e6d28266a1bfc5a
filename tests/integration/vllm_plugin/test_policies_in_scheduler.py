"""Policies inside vLLM's own scheduler, in virtual time: targets kept, nobody lost or starved."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 600.0
TARGET_S = 0.04
CONFIG = {
    "kv_blocks": 4000,
    "running_max": 32,
    "step_tokens_max": 2048,
    "block_tokens": 16,
    "long_prefill_tokens_max": None,
    "prefix_cache": False,
}
SCARCE = {**CONFIG, "kv_blocks": 260}
"""Room for one long prompt and some short ones."""
BLOCKS = {**CONFIG, "kv_blocks": 300, "block_tokens": 256}
"""Prompts are cut at whole blocks, each about as long as a step may be."""
BUDGET = {"budget": "model", "itl_target_s": TARGET_S}
ORDERED = {**BUDGET, "ordering": "shortest"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "off": (CONFIG, None, "hook"),
    "budget": (CONFIG, BUDGET, "hook"),
    "late": (CONFIG, {**BUDGET, "ttft_target_s": 0.2}, "hook"),
    "limits": (CONFIG, {"limits": "aimd", "itl_target_s": TARGET_S}, "hook"),
    "class off": (CONFIG, None, "class"),
    "ordered": (CONFIG, ORDERED, "class"),
    "scarce": (SCARCE, ORDERED, "class"),
    "blocks off": (BLOCKS, None, "hook"),
    "blocks": (BLOCKS, BUDGET, "hook"),
}


def requests(case: str) -> list[tuple[float, int, int]]:
    """Short prompts, and now and then a long one; longer answers where many are to decode."""
    longer = 8 if "blocks" in case else 1
    random = Random(1)
    found, at_s = [], 0.0
    for _ in range(120):
        at_s += random.expovariate(4.0)
        prompt = random.randint(1500, 3000) if random.random() < 0.15 else random.randint(20, 80)
        found.append((at_s, prompt, longer * random.randint(20, 60)))
    return found


@pytest.fixture(scope="module")
def results(vllm_python: Path) -> dict[str, dict[str, Any]]:
    """Of each case what vLLM's scheduler did."""
    documents = [
        {
            "config": config,
            "policy": policy,
            "scheduler": scheduler,
            "blocks": config is BLOCKS,
            "requests": requests(case),
            "step_s": [0.01, 1e-4],
        }
        for case, (config, policy, scheduler) in CASES.items()
    ]
    ended = subprocess.run(
        [str(vllm_python), "-m", "tests.support.vllm_policies"],
        input=json.dumps(documents).encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert ended.returncode == 0, ended.stderr[-5000:].decode(errors="replace")
    found = json.loads(ended.stdout.splitlines()[-1])
    return dict(zip(CASES, found, strict=True))


def gaps(result: dict[str, Any]) -> list[float]:
    """Between all tokens, ascending."""
    return sorted(b - a for times in result["tokens_at"] for a, b in pairwise(times))


def beside(result: dict[str, Any]) -> int:
    """The most prompt tokens of a step in which others decoded."""
    most: int = max(prompt for prompt, decoding in result["steps"] if decoding)
    return most


def waits(result: dict[str, Any], *, short: bool) -> list[float]:
    """Times to first tokens, ascending."""
    return sorted(
        times[0] - at_s
        for times, (at_s, prompt, _) in zip(result["tokens_at"], requests(""), strict=True)
        if (prompt < 100) == short
    )


@pytest.mark.parametrize("case", CASES)
def test_every_request_gets_all_its_tokens_and_values_are_set_back(
    results: dict[str, dict[str, Any]], case: str
) -> None:
    result = results[case]
    assert [len(times) for times in result["tokens_at"]] == [out for _, _, out in requests(case)]
    assert result["set_back"]


def test_the_budget_keeps_the_target_that_the_engine_misses(
    results: dict[str, dict[str, Any]],
) -> None:
    assert gaps(results["off"])[-1] > 4 * TARGET_S
    governed = gaps(results["budget"])
    assert sum(gap > TARGET_S for gap in governed) < 0.01 * len(governed)
    assert beside(results["budget"]) < beside(results["off"]) / 4
    ended_s = [max(map(max, results[case]["tokens_at"])) for case in ("off", "budget")]
    assert ended_s[1] < 1.05 * ended_s[0]


def test_the_scheduler_class_alone_changes_nothing(results: dict[str, dict[str, Any]]) -> None:
    assert results["class off"]["tokens_at"] == results["off"]["tokens_at"]


def test_in_order_a_long_prompt_does_not_hold_up_short_ones(
    results: dict[str, dict[str, Any]],
) -> None:
    assert results["ordered"]["policy"]["steps_held"] > 10
    ordered, budget = (waits(results[case], short=True) for case in ("ordered", "budget"))
    assert ordered[int(0.95 * len(ordered))] < budget[int(0.95 * len(budget))] / 2
    assert sum(gap > TARGET_S for gap in gaps(results["ordered"])) < 0.02 * len(ordered) * 40
    # The long ones wait longer for it, but not for ever.
    assert waits(results["ordered"], short=False)[-1] < 4 * waits(results["off"], short=False)[-1]


def test_prompts_that_are_cut_at_blocks_go_on_beside_those_that_decode(
    results: dict[str, dict[str, Any]],
) -> None:
    steps = [step for step in results["blocks"]["steps"] if step[1]]
    assert sum(prompt >= BLOCKS["block_tokens"] for prompt, _ in steps) > 20
    governed, off = (waits(results[case], short=False) for case in ("blocks", "blocks off"))
    assert governed[-1] < 4 * off[-1]
    assert gaps(results["blocks"])[-1] < gaps(results["blocks off"])[-1] / 2
