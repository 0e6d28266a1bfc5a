"""Arms of an A/B run made of synthetic latencies, block by block, and a run of a plan over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from mileage.measure.ab_guards import AbFacts
from mileage.measure.ab_test import AbResult, ab_result_of_figures
from mileage.measure.arm_slot import SlotFigures
from mileage.measure.record_latency import Floats
from mileage.measure.run_figures import RunFigures
from mileage.measure.sequential import SequentialPlan
from mileage.measure.spread import Spread, spread

__all__ = [
    "DECIDING",
    "Arms",
    "failing_arms",
    "lognormal_arms",
    "queue_arms",
    "run_plan",
    "slot_of",
]

Arms = Callable[[int], tuple[SlotFigures, SlotFigures]]
"""Makes the two slots of a block."""

DECIDING = ("e2e_p50_s", "e2e_mean_s", "e2e_p99_s")

_NOTHING = Spread()


def slot_of(
    block: int,
    arm: Literal["a", "b"],
    order: Literal[0, 1] | None,
    e2e_s: Sequence[float] | Floats = (),
    *,
    window_s: float = 100.0,
    requests: int | None = None,
    failed: int = 0,
    cached_ratio: float | None = None,
    prompt_tokens_mean: float | None = None,
) -> SlotFigures:
    """A slot with these latencies of answers; `failed` further requests timed out."""
    e2e = spread(e2e_s)
    lasting = e2e.count + failed
    return SlotFigures(
        block=block,
        arm=arm,
        order=order,
        prompt_tokens_mean=prompt_tokens_mean,
        extra={"failed_ratio": failed / lasting if lasting else None},
        figures=RunFigures(
            requests=lasting if requests is None else requests,
            requests_ok=e2e.count,
            requests_failed={"timeout": failed} if failed else {},
            requests_cancelled=0,
            window_s=window_s,
            ttft_s=_NOTHING,
            itl_s=_NOTHING,
            itl_request_p99_s=_NOTHING,
            tpot_s=_NOTHING,
            e2e_s=e2e,
            ttft_at_least_s=_NOTHING,
            e2e_at_least_s=e2e,
            latency_censored_ratio=None,
            requests_per_s=e2e.count / window_s,
            goodput_rps=None,
            slo_attainment_ratio=None,
            output_tokens_per_s=None,
            prompt_tokens_per_s=None,
            tokens_per_event=None,
            cached_tokens_ratio=cached_ratio,
            usage_reported_ratio=None,
        ),
    )


def lognormal_arms(
    generator: np.random.Generator, *, requests: int, effect: float = 1.0, sigma: float = 0.5
) -> Arms:
    """Independent lognormal latencies; those of b are `effect` times as long."""

    b_first = _turns(generator)

    def block(number: int) -> tuple[SlotFigures, SlotFigures]:
        order: Literal[0, 1] = 0 if next(b_first) else 1
        a = generator.lognormal(0.0, sigma, requests)
        b = generator.lognormal(0.0, sigma, requests) * effect
        other: Literal[0, 1] = 0 if order else 1
        return slot_of(number, "a", other, a), slot_of(number, "b", order, b)

    return block


def failing_arms(
    generator: np.random.Generator,
    *,
    requests: int,
    share: float,
    times: float = 1.0,
    clump: int = 1,
    effect: float = 1.0,
) -> Arms:
    """Lognormal latencies of the requests that do not fail: a fails with chance `share` and b
    `times` as often, in clumps of `clump` that fail as one."""
    b_first = _turns(generator)

    def slot(number: int, arm: Literal["a", "b"], order: Literal[0, 1]) -> SlotFigures:
        own = times if arm == "b" else 1.0
        failed = clump * int(generator.binomial(requests // clump, share * own))
        scale = effect if arm == "b" else 1.0
        latencies = scale * generator.lognormal(0.0, 0.5, requests - failed)
        return slot_of(number, arm, order, latencies, failed=failed)

    def block(number: int) -> tuple[SlotFigures, SlotFigures]:
        first = next(b_first)
        return slot(number, "a", 1 if first else 0), slot(number, "b", 0 if first else 1)

    return block


def queue_arms(
    generator: np.random.Generator, *, requests: int, load: float, effect: float = 1.0
) -> Arms:
    """Sojourn times of one M/M/1 queue that goes on from slot to slot, the arms in random order.

    Service takes 1 s on average, with b `effect` times as long. Lindley's recursion: the wait of
    the next request is max(0, wait + service - gap), so waits follow from a running minimum.
    """
    left_s = 0.0
    b_first = _turns(generator)

    def slot(factor: float) -> Floats:
        nonlocal left_s
        service = generator.exponential(factor, requests)
        gaps = generator.exponential(1.0 / load, requests)
        steps = np.concatenate(([max(0.0, left_s - gaps[0])], service[:-1] - gaps[1:]))
        path = np.cumsum(steps)
        waits: Floats = path - np.minimum(0.0, np.minimum.accumulate(path))
        left_s = float(waits[-1] + service[-1])
        sojourn: Floats = waits + service
        return sojourn

    def block(number: int) -> tuple[SlotFigures, SlotFigures]:
        if next(b_first):
            b, a = slot(effect), slot(1.0)
            return slot_of(number, "a", 1, a), slot_of(number, "b", 0, b)
        a, b = slot(1.0), slot(effect)
        return slot_of(number, "a", 0, a), slot_of(number, "b", 1, b)

    return block


def _turns(generator: np.random.Generator) -> Iterator[bool]:
    """Whether b comes first: of each two blocks in one, which of them is drawn."""
    while True:
        first = bool(generator.random() < 0.5)
        yield from (first, not first)


def run_plan(arms: Arms, plan: SequentialPlan, *, deciding: Sequence[str] = DECIDING) -> AbResult:
    """Run the plan: look when it says so, and end when a look, or the plan, ends it."""
    slots: list[SlotFigures] = []
    for number in range(plan.blocks_max):
        slots += arms(number)
        if plan.is_look(number + 1):
            result = ab_result_of_figures(slots, plan=plan, facts=AbFacts(), deciding=deciding)
            if result.stop:
                return result
    raise AssertionError("a plan ends at its last block")
