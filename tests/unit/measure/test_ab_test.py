"""The verdict on two arms: what decides, when a run may stop, and what makes it invalid."""

from __future__ import annotations

from random import Random
from typing import Literal

import numpy as np
import pytest

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.measure.ab_guards import AbFacts
from mileage.measure.ab_test import AbResult, ab_result, ab_result_of_figures
from mileage.measure.arm_slot import ArmSlot, SlotFigures
from mileage.measure.pooled_ratio import pooled_ratio
from mileage.measure.sequential import SequentialPlan
from tests.support.ab_world import lognormal_arms, run_plan, slot_of
from tests.support.call_records import streamed

PLAN = SequentialPlan()


def slots(effect: float, *, blocks: int = 8, sigma: float = 0.5) -> list[SlotFigures]:
    arms = lognormal_arms(np.random.default_rng(1), requests=200, effect=effect, sigma=sigma)
    return [slot for block in range(blocks) for slot in arms(block)]


def judged(own: list[SlotFigures], facts: AbFacts | None = None) -> AbResult:
    return ab_result_of_figures(
        own, plan=PLAN, facts=facts or AbFacts(), deciding=("e2e_p50_s", "e2e_mean_s")
    )


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [
        pytest.param(2.0, "worse", id="twice as slow"),
        pytest.param(0.5, "better", id="twice as fast"),
        pytest.param(1.0, "no_difference", id="equal arms"),
    ],
)
def test_the_verdict(effect: float, verdict: str) -> None:
    assert judged(slots(effect)).verdict == verdict


def test_a_large_difference_ends_the_run_at_its_first_look() -> None:
    generator = np.random.default_rng(1)
    arms = lognormal_arms(generator, requests=200, effect=1.5)
    found = run_plan(arms, PLAN, deciding=("e2e_p50_s",))

    assert (found.verdict, found.blocks, found.stop) == ("worse", 8, True)


def test_equal_arms_that_are_known_to_be_equal_end_the_run_early() -> None:
    generator = np.random.default_rng(1)
    found = run_plan(lognormal_arms(generator, requests=4000, sigma=0.2), PLAN)

    assert found.verdict == "no_difference"
    assert found.blocks < PLAN.blocks_max


def test_between_two_looks_the_run_does_not_stop() -> None:
    assert not judged(slots(2.0, blocks=9)).stop
    assert judged(slots(2.0, blocks=12)).stop


def test_arms_that_are_better_in_one_and_worse_in_another_metric_are_mixed() -> None:
    """b's median is lower, and its mean higher."""
    own = []
    for block, noise in enumerate((0.0, 0.01, 0.02, 0.0, 0.01, 0.03, 0.0, 0.02)):
        own.append(slot_of(block, "a", 0 if block % 2 else 1, [1.0 + noise, 1.0, 1.0]))
        own.append(slot_of(block, "b", 1 if block % 2 else 0, [0.5, 0.5 + noise, 9.0]))

    assert judged(own).verdict == "mixed"


def test_a_confounder_leaves_no_verdict_and_is_named() -> None:
    found = judged(slots(2.0), AbFacts(restarts=("server b",)))

    assert (found.verdict, found.stop) == ("invalid", True)
    assert "server b restarted" in found.text
    assert found.comparisons["e2e_p50_s"].verdict == "worse"


def test_metrics_share_the_level_and_those_that_were_not_seen_do_not_decide() -> None:
    own = slots(1.0)
    two = judged(own)
    one = ab_result_of_figures(
        own, plan=PLAN, facts=AbFacts(), deciding=("e2e_p50_s", "ttft_p99_s")
    )

    assert (two.deciding, one.deciding) == (("e2e_p50_s", "e2e_mean_s"), ("e2e_p50_s",))
    assert two.comparisons["e2e_p50_s"].level < one.comparisons["e2e_p50_s"].level
    assert "ttft_p99_s" not in one.comparisons
    assert one.comparisons["e2e_p99_s"].level == 0.05


def test_nothing_seen_is_invalid() -> None:
    assert judged([]).verdict == "invalid"


@pytest.mark.parametrize("name", ["speed", "utilisation_ratio"])
def test_a_metric_that_cannot_decide_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"metrics: got '{name}'"):
        ab_result_of_figures([], plan=PLAN, facts=AbFacts(), deciding=(name,))


def arm_slots(effect: float) -> list[ArmSlot]:
    generator = np.random.default_rng(2)
    found = []
    for block in range(8):
        for arm in ("a", "b"):
            side: Literal["a", "b"] = "a" if arm == "a" else "b"
            scale = effect if arm == "b" else 1.0
            records = []
            for number in range(40):
                gaps = scale * generator.uniform(0.09, 0.11, 10)
                times = (number + np.cumsum(gaps)).tolist()
                records.append(
                    streamed(times, scheduled_s=float(number), planned_prompt_tokens=100)
                )
            found.append(
                ArmSlot(
                    block=block,
                    arm=side,
                    order=(block + (arm == "b")) % 2,  # type: ignore[arg-type]
                    start_s=0.0,
                    end_s=40.0,
                    records=records,
                    extra={"memory_bytes": 1e9 * scale},
                )
            )
    return found


def test_records_are_judged_by_the_figures_of_their_slots() -> None:
    found = ab_result(arm_slots(1.5), plan=PLAN, slo=Slo(ttft_s=1.0), facts=AbFacts())

    assert found.verdict == "worse"
    assert found.comparisons["ttft_p50_s"].ratio == pytest.approx(1.5, rel=0.02)
    assert found.comparisons["memory_bytes"].ratio == pytest.approx(1.5)
    assert found.comparisons["goodput_rps"].ratio == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("latency", ["ttft_s", "itl_s", "tpot_s", "e2e_s"])
@pytest.mark.parametrize("q", [0.5, None])
def test_the_ratio_over_all_requests_has_a_bootstrap_interval(
    latency: Literal["ttft_s", "itl_s", "tpot_s", "e2e_s"], q: float | None
) -> None:
    found = pooled_ratio(arm_slots(1.5), latency, q, random=Random(1), resamples=400)

    assert found is not None
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(1.5, rel=0.02)
    assert pooled_ratio(arm_slots(1.5)[:2], latency, q, random=Random(1)) is None
