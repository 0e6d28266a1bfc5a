"""What the judge of an A/B run makes of its slots."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.loadgen.arms_result import Judge, deciding_metrics
from mileage.measure.sequential import SequentialPlan
from mileage.measure.server_use import ServerUse
from tests.support.ab_slots import answers, arms_run, slot
from tests.support.bench_runs import failed, stream

PLAN = SequentialPlan(blocks_first=4, blocks_between=2, blocks_max=12)


def judge(**options: Any) -> Judge:
    return Judge(PLAN, slo=Slo(), **options)


@pytest.mark.parametrize(
    ("took_s", "verdict"),
    [
        pytest.param(0.15, "worse", id="slower"),
        pytest.param(0.07, "better", id="faster"),
        pytest.param(0.1, "no_difference", id="equal"),
    ],
)
def test_ttft_p99_decides_where_nothing_else_is_asked_for(took_s: float, verdict: str) -> None:
    found = judge().result(arms_run(answers(0.1), answers(took_s)))
    assert found.verdict == verdict
    assert found.deciding == ("ttft_p99_s",)


def test_a_metric_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="cached_tokens_ratio"):
        deciding_metrics(["e2e_p50_s", "cached_tokens_ratio"])


def test_few_pairs_in_which_the_generator_was_the_limit_are_left_out_and_told() -> None:
    run, found = arms_run(answers(0.1), answers(0.2), pairs=8, limited=(3, 5)), judge()
    result = found.result(run)
    assert (result.verdict, result.blocks) == ("worse", 6)
    (note,) = [n for n in found.notes(run, mode="interleaved", sharing="nothing") if "left" in n]
    assert "2 of 8 pairs are left out" in note


def test_many_of_them_leave_no_verdict() -> None:
    result = judge().result(arms_run(answers(0.1), answers(0.2), pairs=12, limited=(0, 3, 5, 7)))
    assert result.verdict == "invalid"
    assert "the load generator was the limit" in result.text


@pytest.mark.parametrize(
    ("pairs", "limited", "stop"),
    [
        pytest.param(4, (0, 1), False, id="at first: pairs to come may outweigh them"),
        pytest.param(6, (0, 2, 4), False, id="a quarter of all that can be is not passed"),
        pytest.param(6, (0, 2, 4, 5), True, id="more than a quarter of all that can be"),
        pytest.param(12, (0, 1, 2, 3), True, id="the end"),
    ],
)
def test_a_run_is_given_up_where_the_generator_cannot_recover(
    pairs: int, limited: tuple[int, ...], stop: bool
) -> None:
    run = arms_run(answers(0.1), answers(0.1), pairs=pairs, limited=limited)
    assert judge().is_enough(run) is stop


def test_a_long_run_is_given_up_where_most_pairs_are_limited() -> None:
    run = arms_run(answers(0.1), answers(0.1), pairs=6, limited=(0, 1, 2, 3))
    long = SequentialPlan(blocks_first=4, blocks_max=200)
    assert Judge(long, slo=Slo()).is_enough(run)


def test_a_plan_that_time_makes_shorter_spends_all_its_error_at_its_end() -> None:
    long = SequentialPlan(blocks_first=8, blocks_max=200)
    run = arms_run(answers(0.1, spread=0.05), answers(0.115, spread=-0.05), pairs=10)
    found = Judge(long, slo=Slo())
    assert found.result(run).verdict == "no_difference"
    found.shorten(10)
    assert found.plan.blocks_max == 10
    result = found.result(run)
    assert result.verdict == "worse"
    assert result.stop
    assert result.comparisons["ttft_p99_s"].level <= 0.05


def test_the_last_look_spends_what_is_left_though_pairs_are_left_out() -> None:
    run = arms_run(answers(0.1), answers(0.1), pairs=12, limited=(2, 7))
    result = judge().result(run)
    assert result.blocks == 10
    assert result.stop
    whole = judge().result(arms_run(answers(0.1), answers(0.1), pairs=12))
    levels = [each.comparisons["ttft_p99_s"].level for each in (result, whole)]
    assert levels[0] == pytest.approx(levels[1], rel=0.1)
    assert 0.03 < levels[0] < 0.05


def test_a_plan_is_never_made_longer_or_too_short_to_judge() -> None:
    found = judge()
    found.shorten(50)
    assert found.plan == PLAN
    found.shorten(1)
    assert (found.plan.blocks_first, found.plan.blocks_max) == (4, 4)


def test_a_restart_leaves_no_verdict() -> None:
    run = arms_run(answers(0.1), answers(0.2))
    use = ServerUse(restarted=True)
    run.slots[3] = slot("b", run.slots[3].load.records, pair=1, order=0, use=use)
    result = judge().result(run)
    assert result.verdict == "invalid"
    assert "the server of arm b, in pair 2, restarted" in result.text


def test_money_is_by_what_came_out() -> None:
    run = arms_run(answers(0.1), answers(0.1))
    found = judge(usd_per_hour={"a": 3.6, "b": 7.2}).result(run)
    # 20 answers of 3 tokens in 10 s: 6 tokens a second, each for a sixth of 0.001 USD.
    assert found.comparisons["usd_per_million_tokens"].a == pytest.approx(1000.0 / 6.0)
    assert found.comparisons["usd_per_million_tokens"].ratio == pytest.approx(2.0)


def test_failures_are_told_by_arm_and_class() -> None:
    def some_fail(pair: int) -> list[Any]:
        good = [stream(n / 10, ttft_s=0.1, index=n) for n in range(15)]
        return good + [failed(2.0, "timeout", index=n) for n in range(15, 20)]

    found, run = judge(), arms_run(answers(0.1), some_fail)
    notes = found.notes(run, mode="interleaved", sharing="nothing")
    assert "requests failed: arm a 0.00%; arm b 25.00% (30 timeout)" in notes


def test_a_run_that_saw_no_difference_tells_how_long_one_would_take() -> None:
    run, found = arms_run(answers(0.1), answers(0.1, spread=0.08)), judge()
    result = found.result(run)
    (outlook,) = found.outlook(run, result, effect_ratio=0.05, power=0.8)
    assert outlook.pairs is not None
    assert outlook.duration_s == pytest.approx(outlook.pairs * (120.5 / 6.0))
    (harder,) = found.outlook(run, result, effect_ratio=0.02, power=0.8)
    assert harder.pairs is not None
    assert harder.pairs > outlook.pairs
