"""Rates come from each worker's own report times, and never count what nobody saw."""

from __future__ import annotations

import msgspec
import pytest

from mileage.gateway.admin.rates import WorkerRates
from mileage.gateway.messages import Report
from mileage.measure.metrics import Counter, FamilySnapshot, Histogram


def report(
    at_s: float,
    *,
    pid: int = 1,
    ok: float | None = None,
    failed: float | None = None,
    output: float | None = None,
    ttft: tuple[int, int, int] | None = None,
) -> Report:
    requests = Counter("mileage_requests_total", "R.", ("model", "outcome"))
    for outcome, number in (("ok", ok), ("failed", failed)):
        if number is not None:
            requests.add(("m", outcome), number)
    tokens = Counter("mileage_output_tokens_total", "O.", ("model",))
    if output is not None:
        tokens.add(("m",), output)
    latency = Histogram("mileage_time_to_first_token_seconds", "T.", ("model",), bounds=(1.0, 2.0))
    for value, count in zip((0.5, 1.5, 9.0), ttft or (), strict=False):
        latency.observe(value, ("m",), count)
    families: list[FamilySnapshot] = [each.snapshot() for each in (requests, tokens, latency)]
    return Report(
        pid=pid,
        at_s=at_s,
        connections=0,
        in_flight=0,
        draining=False,
        ledger_ok=True,
        families=families,
        replicas=[],
    )


def test_a_rate_is_over_the_reports_own_time() -> None:
    rates = WorkerRates()
    # Sampled each second, while the reports come a little faster, then one is late.
    for now_s, at_s, ok in ((1.0, 0.9, 9), (2.0, 1.8, 18), (3.0, 1.8, 18), (4.0, 3.6, 36)):
        rates.update([report(at_s, ok=ok)], now_s)
    assert rates.rates()["requests_per_s", "ok"] == pytest.approx(10)
    assert rates.rates()["requests_per_s", None] == pytest.approx(10)


def test_rates_of_workers_are_added_up() -> None:
    rates = WorkerRates()
    rates.update([report(1.0, pid=1, ok=0), report(1.3, pid=2, ok=100)], 1.5)
    rates.update([report(2.0, pid=1, ok=4), report(2.3, pid=2, ok=106, failed=1)], 2.5)
    found = rates.rates()
    assert found["requests_per_s", "ok"] == pytest.approx(10)
    assert found["requests_per_s", "failed"] == pytest.approx(1)
    assert found["requests_per_s", None] == pytest.approx(11)


def test_the_rate_is_of_the_last_seconds_only() -> None:
    rates = WorkerRates()
    for second in range(30):
        rates.update([report(float(second), ok=100.0 * min(second, 20))], float(second))
    assert rates.rates()["requests_per_s", "ok"] == 0


def test_a_first_report_is_only_a_baseline() -> None:
    rates = WorkerRates()
    gained = rates.update([report(1.0, ok=1_000_000, ttft=(5, 5, 5))], 1.0)
    assert (gained, rates.rates(), rates.window_counts()) == ({}, {}, {})
    gained = rates.update([report(2.0, ok=1_000_003, ttft=(6, 7, 5))], 2.0)
    assert gained == {("ttft_s", None): [1, 2, 0]}
    assert rates.rates()["requests_per_s", "ok"] == pytest.approx(3)


def test_no_requests_are_a_rate_of_zero_but_tokens_never_told_are_missing() -> None:
    rates = WorkerRates()
    rates.update([report(1.0)], 1.0)
    rates.update([report(2.0)], 2.0)
    assert rates.rates() == {("requests_per_s", None): 0}
    rates.update([report(3.0, ok=1, output=30)], 3.0)
    assert rates.rates()["output_tokens_per_s", None] == pytest.approx(15)


def test_a_silent_worker_counts_for_nothing() -> None:
    rates = WorkerRates()
    rates.update([report(1.0, ok=1)], 1.0)
    rates.update([report(2.0, ok=5)], 2.0)
    rates.update([report(2.0, ok=5)], 7.1)
    assert (rates.rates(), rates.window_counts()) == ({}, {})


def test_a_worker_that_left_counts_for_nothing() -> None:
    rates = WorkerRates()
    rates.update([report(1.0, pid=1, ok=1), report(1.0, pid=2, ok=0)], 1.0)
    rates.update([report(2.0, pid=1, ok=50), report(2.0, pid=2, ok=7)], 2.0)
    rates.update([report(3.0, pid=2, ok=14)], 3.0)
    assert rates.rates()["requests_per_s", "ok"] == pytest.approx(7)


def test_counters_that_fall_begin_anew() -> None:
    rates = WorkerRates()
    rates.update([report(1.0, ok=100)], 1.0)
    rates.update([report(2.0, ok=110)], 2.0)
    rates.update([report(3.0, ok=4)], 3.0)
    assert rates.rates() == {}
    rates.update([report(4.0, ok=6)], 4.0)
    assert rates.rates()["requests_per_s", "ok"] == pytest.approx(2)


def test_quantiles_come_from_the_last_ten_seconds() -> None:
    rates = WorkerRates()
    for second in range(40):
        slow = min(second, 15)
        rates.update([report(float(second), ttft=(second, 0, slow))], float(second))
    assert rates.window_counts() == {("ttft_s", None): [10, 0, 0]}
    assert rates.bounds == {"ttft_s": (1.0, 2.0)}


def targets(at_s: float, met: int, missed: int, late: int = 0) -> Report:
    slo = Counter("mileage_slo_requests_total", "S.", ("model", "target", "met"))
    for labels, number in (
        (("m", "all", "yes"), met),
        (("m", "all", "no"), missed),
        (("n", "all", "no"), late),
    ):
        if number:
            slo.add(labels, number)
    return msgspec.structs.replace(report(at_s), families=[slo.snapshot()])


def test_met_and_missed_targets_are_counted_over_models() -> None:
    rates = WorkerRates()
    rates.update([targets(1.0, 100, 0)], 1.0)
    gained = rates.update([targets(2.0, 107, 1, late=2)], 2.0)
    assert gained == {("targets_met_ratio", "all"): [7, 3]}
    gained = rates.update([targets(3.0, 108, 1, late=2)], 3.0)
    assert gained == {("targets_met_ratio", "all"): [1, 0]}
    assert rates.window_counts() == {("targets_met_ratio", "all"): [8, 3]}


def test_refusals_and_shared_answers_never_seen_are_a_rate_of_zero() -> None:
    rates = WorkerRates()
    families = [
        Counter("mileage_requests_rejected_total", "R.", ("tenant", "reason")).snapshot(),
        Counter("mileage_requests_merged_total", "M.", ("kind",)).snapshot(),
    ]
    for at_s in (1.0, 2.0):
        rates.update([msgspec.structs.replace(report(at_s), families=families)], at_s)
    assert rates.rates() == {("rejected_per_s", None): 0, ("merged_per_s", None): 0}


def test_reports_that_come_seldom_still_give_a_rate() -> None:
    rates = WorkerRates()
    rates.update([report(0.0, ok=0)], 0.0)
    rates.update([report(60.0, ok=120)], 60.0)
    assert rates.rates()["requests_per_s", "ok"] == pytest.approx(2)
