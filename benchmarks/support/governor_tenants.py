"""Two tenants at weights 3:1 that both want more than there is, and a budget met by a burst.

What a tenant got is told by the engine, which tags its work, and weighed by the step model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.support.calls import Call, Mix
from benchmarks.support.goodput import Arm
from benchmarks.support.governed import tenant_key
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.load_client import Loop, run_loops, run_schedule
from benchmarks.support.step_answers import CHAT_MODEL
from benchmarks.support.step_model import MODELS, StepModel
from benchmarks.support.step_upstream import StepUpstream, late_steps
from benchmarks.support.verdict import Bar
from benchmarks.support.watch import LOAD_CORE

__all__ = ["measure_budget", "measure_shares", "share_ratio", "work_done_s"]

WEIGHTS = {"three": 3.0, "one": 1.0}
CONNECTIONS = 40
WARM_S = 20.0
LIMIT = 16
STEP_MODEL = "linear"
Lengths = dict[str, tuple[tuple[int, int], tuple[int, int]]]
ALIKE: Lengths = {"three": ((60, 100), (16, 32)), "one": ((60, 100), (16, 32))}
UNLIKE: Lengths = {"three": ((200, 400), (4, 12)), "one": ((12, 24), (32, 64))}
"""Prompt and output tokens by tenant: the same mix, and one of long prompts against one of long
answers."""
SHARES = (("alike", ALIKE, True), ("unlike", UNLIKE, True), ("unlike_whole", UNLIKE, False))
"""Names, lengths, and whether the answers are streams."""

BUDGET_REQUESTS, BURST = 100, 500
BUDGET_PROMPT_TOKENS, BUDGET_OUTPUT_TOKENS = 40, 60


def measure_shares(around: Surroundings) -> Part:
    """Engine work by tenant while both always have requests waiting."""
    part = Part()
    part.bars = tuple(Bar(f"share_error_ratio_{name}", 0.05, at_least=False) for name, *_ in SHARES)
    seconds = 4.0 if around.quick else 40.0
    with StepUpstream(around.new_directory("shares"), core=LOAD_CORE, model=STEP_MODEL) as engine:
        for name, lengths, stream in SHARES:
            ratio = _shares(around, engine, (name, lengths, stream), seconds, part)
            wanted = WEIGHTS["three"] / WEIGHTS["one"]
            part.figures[f"share_ratio_{name}"] = round(ratio, 3)
            part.figures[f"share_error_ratio_{name}"] = round(abs(ratio / wanted - 1.0), 4)
            around.output.say(f"shares: {name} requests: work {ratio:.2f} : 1")
    return part


def _shares(
    around: Surroundings,
    engine: StepUpstream,
    what: tuple[str, Lengths, bool],
    seconds: float,
    part: Part,
) -> float:
    name, lengths, stream = what
    loops = []
    for number, (tenant, (prompts, outputs)) in enumerate(lengths.items()):
        mix = Mix(
            model=CHAT_MODEL,
            prompt_tokens=prompts,
            output_tokens=outputs,
            tag=f"{name}-{tenant}",
            key=tenant_key(tenant),
            stream=stream,
        )
        loops.append(Loop(mix.endless(41 + number), CONNECTIONS))
    sections = {"governor": {"policy": "static", "static": {"limit": LIMIT}}}
    tenants = {tenant: {"weight": weight} for tenant, weight in WEIGHTS.items()}
    with (
        around.gateway(
            around.new_directory(f"shares-{name}"),
            sections=sections,
            engine_url=engine.url,
            engine_slots=engine.slots,
            tenants=tenants,
        ) as stack,
        ThreadPoolExecutor(1) as load,
    ):
        running = load.submit(
            run_loops, stack.chat_port, loops, duration_s=WARM_S + seconds + 1.0, drain_s=0.0
        )
        # The first seconds fill the queue and teach the gateway what a token costs this engine.
        time.sleep(WARM_S)
        engine.reset_lags()
        before = engine.stats()["work"]
        time.sleep(seconds)
        stats = engine.stats()
        calls = running.result()
    engine.wait_idle()
    arm = Arm(f"shares {name}")
    arm.add(calls, seconds)
    part.failures += arm.errors()[:1]
    late = late_steps(stats["lags"])
    if late is not None:
        part.doubts.append(f"shares {name}: {late}")
    tags = [f"{name}-{tenant}" for tenant in ("three", "one")]
    return share_ratio(before, stats["work"], tags, MODELS[STEP_MODEL])


def share_ratio(
    before: Mapping[str, Sequence[int]],
    after: Mapping[str, Sequence[int]],
    tags: Sequence[str],
    model: StepModel,
) -> float:
    """The work of the first tag between two readings over that of the second."""
    none = (0, 0)
    first, second = (
        work_done_s(after.get(tag, none), model) - work_done_s(before.get(tag, none), model)
        for tag in tags
    )
    return first / second if second else float("inf")


def work_done_s(tokens: Sequence[int], model: StepModel) -> float:
    """Seconds of the compute plane for prompt tokens computed and decodes."""
    prefilled, decoded = tokens
    return model.compute.prefill_token_s * prefilled + model.compute.running_s * decoded


def measure_budget(around: Surroundings) -> Part:
    """A burst of 500 requests at once, of a tenant whose budget is enough for 100."""
    part = Part()
    per_request = BUDGET_PROMPT_TOKENS + BUDGET_OUTPUT_TOKENS
    budget = BUDGET_REQUESTS * per_request
    mix = Mix(
        model=CHAT_MODEL,
        prompt_tokens=(BUDGET_PROMPT_TOKENS, BUDGET_PROMPT_TOKENS),
        output_tokens=(BUDGET_OUTPUT_TOKENS, BUDGET_OUTPUT_TOKENS),
        key=tenant_key("burst"),
    )
    sections: dict[str, Any] = {"governor": {"policy": "model"}}
    tenants = {"burst": {"budgets": [{"amount": budget, "unit": "tokens", "per": "month"}]}}
    with (
        StepUpstream(around.new_directory("budget"), core=LOAD_CORE) as engine,
        around.gateway(
            around.new_directory("budget"),
            sections=sections,
            engine_url=engine.url,
            engine_slots=engine.slots,
            tenants=tenants,
        ) as stack,
    ):
        started = time.monotonic()
        calls = mix.calls(51, [0.0] * BURST)
        run_schedule(stack.chat_port, calls, drain_s=60.0)
        took_s = time.monotonic() - started
        stats = engine.stats()
    part.failures += [
        f"budget: {call.status or 'no answer'}: {call.error}"
        for call in calls
        if not call.whole or call.status not in (200, 429)
    ][:1]
    spent = stats["prompt_tokens"] + stats["output_tokens"]
    admitted = sum(_admitted(call) for call in calls)
    part.figures = {
        "budget_tokens": budget,
        "budget_spent_tokens": spent,
        "budget_overspend_tokens": max(0, spent - budget),
        "budget_admitted": admitted,
        "budget_refused": sum(call.status == 429 for call in calls),
        "budget_seconds": round(took_s, 2),
    }
    around.output.say(f"budget: {admitted} of {BURST} admitted, {spent} of {budget} tokens spent")
    part.bars = (
        Bar("budget_overspend_tokens", 1, at_least=False),
        Bar("budget_admitted", 95),
    )
    return part


def _admitted(call: Call) -> bool:
    return call.status == 200 and call.whole
