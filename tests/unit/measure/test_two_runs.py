"""Two runs apart in time: ratios over blocks of time, and a verdict at a shared level."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from mileage.core.slo import Slo
from mileage.measure.call_record import CallRecord
from mileage.measure.two_runs import RunWindow, two_runs

DECIDING = ("e2e_p50_s", "ttft_p99_s")


def run(
    seed: int, *, slower: float = 1.0, duration_s: float = 60.0, rate: float = 20.0
) -> RunWindow:
    """Requests with gamma latencies whose mean wanders as that of a queue does."""
    rng = Random(seed)
    records: list[CallRecord] = []
    at_s = mood = 0.0
    while at_s < duration_s:
        at_s += rng.expovariate(rate)
        mood = 0.9 * mood + rng.gauss(0.0, 0.1)
        first_s = slower * 0.1 * rng.gammavariate(8.0, 1 / 8.0) * (1.0 + 0.5 * max(-0.9, mood))
        gap_s = slower * 0.01
        times = [at_s + first_s + k * gap_s for k in range(5)]
        records.append(
            CallRecord(
                index=len(records),
                phase="measured",
                outcome="ok",
                scheduled_s=at_s,
                sent_s=at_s,
                ended_s=times[-1],
                token_times_s=array("d", times),
                token_events=array("I", [1] * 5),
                output_tokens=5,
            )
        )
    return RunWindow(records=records, start_s=0.0, end_s=duration_s)


def test_a_slower_run_is_seen_in_every_latency_and_in_no_rate() -> None:
    found = two_runs(run(1), run(2, slower=1.3), slo=Slo(), deciding=DECIDING)
    for name in ("ttft_p50_s", "e2e_p50_s", "itl_p50_s", "tpot_p50_s"):
        each = found[name]
        assert each.verdict == "worse"
        assert each.ci95 is not None
        assert each.ratio is not None
        assert each.ci95[0] <= 1.3 <= each.ci95[1] or abs(each.ratio - 1.3) < 0.1
    assert found["requests_per_s"].verdict == "no_difference"
    assert "goodput_rps" not in found


def test_the_other_way_round_the_ratio_is_the_inverse() -> None:
    a, b = run(1), run(2, slower=1.3)
    there, back = (two_runs(*each, slo=Slo(), deciding=DECIDING) for each in ((a, b), (b, a)))
    first, second = there["e2e_p50_s"].ratio, back["e2e_p50_s"].ratio
    assert first is not None
    assert second == pytest.approx(1.0 / first)
    assert (there["e2e_p50_s"].verdict, back["e2e_p50_s"].verdict) == ("worse", "better")


def test_runs_of_the_same_are_seldom_told_apart() -> None:
    told = sum(
        two_runs(run(2 * k), run(2 * k + 1), slo=Slo(), deciding=("e2e_p50_s",))[
            "e2e_p50_s"
        ].verdict
        != "no_difference"
        for k in range(20)
    )
    assert told <= 4  # a correct 5 % test is above that once in 400 times


def test_goodput_is_compared_where_there_is_a_target() -> None:
    found = two_runs(run(1), run(2, slower=2.0), slo=Slo(ttft_s=0.13), deciding=DECIDING)
    assert found["goodput_rps"].verdict == "worse"


def test_a_run_that_is_too_short_has_ratios_and_no_interval() -> None:
    a, b = run(1, duration_s=10.0), run(2, duration_s=10.0)
    each = two_runs(a, b, slo=Slo(), deciding=DECIDING)["e2e_p50_s"]
    assert each.ratio is not None
    assert each.ci95 is None
    assert each.verdict is None


def test_a_quantile_that_few_values_are_beyond_has_no_interval() -> None:
    found = two_runs(run(1), run(2), slo=Slo(), deciding=DECIDING)  # 1,200 requests each
    assert found["ttft_p99_s"].ci95 is not None
    assert found["ttft_p999_s"].ratio is not None
    assert found["ttft_p999_s"].ci95 is None


def test_what_a_run_does_not_have_is_left_out() -> None:
    nothing = RunWindow(records=[], start_s=0.0, end_s=60.0)
    assert "e2e_p50_s" not in two_runs(run(1), nothing, slo=Slo(), deciding=DECIDING)
    with pytest.raises(ValueError, match="window"):
        two_runs(run(1), RunWindow(records=[], start_s=1.0, end_s=1.0), slo=Slo(), deciding=())
