"""Failures of two arms: when one fails more often, and what the verdict then is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from mileage.measure.ab_failures import any_failed, compare_failures
from mileage.measure.ab_guards import AbFacts, pairs_of
from mileage.measure.ab_test import AbResult, ab_result_of_figures
from mileage.measure.arm_slot import SlotFigures
from mileage.measure.sequential import SequentialPlan
from tests.support.ab_world import slot_of

ARMS: tuple[Literal["a", "b"], Literal["a", "b"]] = ("a", "b")
NOISE = (0.0, 0.01, 0.02, 0.0, 0.01, 0.03, 0.0, 0.02, 0.01, 0.0, 0.03, 0.02)


def slots(
    a: Sequence[int], b: Sequence[int], *, b_takes: float = 1.0, requests: int = 100
) -> list[SlotFigures]:
    """So many of the requests of each slot fail; the others take about 1 s in arm a."""
    found = []
    for block, failed in enumerate(zip(a, b, strict=True)):
        for place, (arm, lost) in enumerate(zip(ARMS, failed, strict=True)):
            noise = NOISE[(block + 5 * place) % len(NOISE)]
            takes = (b_takes if arm == "b" else 1.0) + noise
            order: Literal[0, 1] = 1 if (block + place) % 2 else 0
            found.append(slot_of(block, arm, order, [takes] * (requests - lost), failed=lost))
    return found


def judged(own: Sequence[SlotFigures]) -> AbResult:
    return ab_result_of_figures(
        own, plan=SequentialPlan(), facts=AbFacts(), deciding=("e2e_p50_s",)
    )


SOME = [5, 4, 6, 5, 7, 5, 4, 5, 6, 5, 4, 6]
NONE = [0] * 12


@pytest.mark.parametrize(
    ("a", "b", "b_takes", "verdict", "flattered"),
    [
        pytest.param(NONE, SOME, 1.0, "worse", "b", id="b fails where a never does"),
        pytest.param(NONE, SOME, 0.5, "worse", "b", id="b fails, and is faster"),
        pytest.param(SOME, NONE, 1.0, "better", "a", id="a fails where b never does"),
        pytest.param(SOME, NONE, 0.5, "better", "a", id="a fails, and is slower"),
        pytest.param(SOME, NONE, 2.0, "mixed", "a", id="a fails, and is faster"),
    ],
)
def test_an_arm_that_fails_more_often(
    a: list[int], b: list[int], b_takes: float, verdict: str, flattered: str
) -> None:
    found = judged(slots(a, b, b_takes=b_takes))

    assert found.verdict == verdict
    assert f"so they flatter {flattered}" in found.text
    assert found.deciding == ("e2e_p50_s", "failed_ratio")
    assert "% of its requests failed" in found.text


def test_a_difference_in_failures_for_the_worse_ends_the_run_at_a_look() -> None:
    assert judged(slots(NONE[:8], SOME[:8])).stop
    assert not judged(slots(NONE[:9], SOME[:9])).stop


def test_an_arm_that_fails_all_its_requests_is_worse_though_it_has_no_latency() -> None:
    found = judged(slots(NONE[:8], [100] * 8))

    assert (found.verdict, found.stop) == ("worse", True)


def test_arms_that_both_fail_all_their_requests_are_not_compared() -> None:
    assert judged(slots([100] * 8, [100] * 8)).verdict == "invalid"


def test_runs_without_a_failure_give_none_of_their_level_away() -> None:
    without, with_one = judged(slots(NONE, NONE)), judged(slots(NONE, [1, *NONE[1:]]))

    assert without.deciding == ("e2e_p50_s",)
    assert without.comparisons["e2e_p50_s"].level > with_one.comparisons["e2e_p50_s"].level


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(SOME, SOME, id="both alike"),
        pytest.param(NONE, [1] + [0] * 11, id="one failure"),
        pytest.param(NONE, [60] + [0] * 11, id="a clump in one slot"),
        pytest.param([0] * 4, [1] * 4, id="one in each of four slots, by chance alike"),
    ],
)
def test_what_chance_explains_is_no_difference(a: list[int], b: list[int]) -> None:
    found = compare_failures(pairs_of(slots(a, b)), level=0.01)

    assert found.verdict == "no_difference"
    assert "no difference seen" in found.text


def test_a_difference_that_is_sure_and_too_small_to_matter_is_none() -> None:
    own = slots([0] * 8, [18, 19, 18, 19, 18, 19, 18, 19], requests=10_000)
    found = compare_failures(pairs_of(own), level=0.01)

    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert found.verdict == "no_difference"


def test_a_faster_arm_that_may_fail_more_often_is_looked_at_longer() -> None:
    """At the first look the latency is decided, and 9 failures to 0 are not yet."""
    own = slots(NONE[:8], [0, 2, 1, 0, 3, 0, 1, 2], b_takes=0.5)
    sound = slots(NONE[:8], [0, 0, 1, 0, 0, 0, 0, 0], b_takes=0.5)

    assert judged(sound).stop
    found = judged(own)
    assert (found.verdict, found.stop) == ("better", False)


def test_failures_are_not_compared_where_an_arm_always_came_first() -> None:
    own = [slot_of(n, "a", 0, [1.0], failed=0) for n in range(8)]
    own += [slot_of(n, "b", 1, [], failed=100) for n in range(8)]
    found = judged(own)

    assert found.verdict == "invalid"


def test_few_blocks_are_not_compared() -> None:
    found = compare_failures(pairs_of(slots([0] * 3, [50] * 3)), level=0.05)

    assert (found.verdict, found.blocks) == ("invalid", 3)
    assert not any_failed(pairs_of(slots(NONE, NONE)))
