"""Blocks of time of two arms, and when a verdict may be read from them."""

from __future__ import annotations

from random import Random

import pytest

from mileage.gateway.admin.experiment_figures import ArmFigures, LatencyFigures
from mileage.gateway.admin.experiment_report import BlockLog


class _Log:
    """A BlockLog whose arms answer so many requests in each block."""

    def __init__(self, requests_min: int = 10) -> None:
        self.log = BlockLog(block_s=10.0, requests_min=requests_min)
        self._now_s, self._totals = 0.0, [0, 0]
        self._sums = [0.0, 0.0]
        self._update()

    def block(self, a_s: float, b_s: float, *, requests: int = 20, took_s: float = 10.0) -> None:
        self._now_s += took_s
        for arm, mean_s in enumerate((a_s, b_s)):
            self._totals[arm] += requests
            self._sums[arm] += requests * mean_s
        self._update()

    def _update(self) -> None:
        a, b = (
            ArmFigures(requests={"ok": total}, e2e=LatencyFigures((1.0,), (total, 0), sum_s))
            for total, sum_s in zip(self._totals, self._sums, strict=True)
        )
        self.log.update(a, b, self._now_s)

    @property
    def verdict(self) -> str:
        return self.log.verdict

    def compared(self) -> dict[str, int]:
        return {each.metric: each.blocks for each in self.log.comparisons()}


def test_a_block_lasts_its_time_and_holds_its_requests() -> None:
    log = _Log()
    log.block(1.0, 1.0, took_s=9.9)
    assert log.compared() == {}
    log.block(1.0, 1.0, took_s=0.1)
    assert log.compared()["e2e_mean_s"] == 1
    log.block(1.0, 1.0, requests=9)
    assert log.compared()["e2e_mean_s"] == 1
    log.block(1.0, 1.0, requests=1)
    assert log.compared()["e2e_mean_s"] == 2


def test_there_is_no_verdict_before_the_first_look() -> None:
    log = _Log()
    for _ in range(7):
        log.block(1.0, 2.0)
    assert log.verdict == "not_yet"
    assert "8 blocks" in log.log.verdict_text
    log.block(1.0, 2.0)
    assert log.verdict == "worse"
    assert "after 8 blocks: e2e_mean_s: b is worse, +100" in log.log.verdict_text


@pytest.mark.parametrize(
    ("b_s", "verdict"),
    [
        pytest.param(0.5, "better", id="half the time"),
        pytest.param(2.0, "worse", id="twice the time"),
        pytest.param(1.0, "no_difference", id="the same"),
    ],
)
def test_the_verdict(b_s: float, verdict: str) -> None:
    random, log = Random(1), _Log()
    for _ in range(16):
        log.block(random.uniform(0.9, 1.1), b_s * random.uniform(0.9, 1.1))
    assert log.verdict == verdict


def test_a_verdict_is_not_taken_back_at_a_look_that_sees_less() -> None:
    log = _Log()
    for _ in range(8):
        log.block(1.0, 2.0)
    for n in range(24):
        log.block(1.0, 4.0 if n % 2 else 0.2)
    assert log.verdict == "worse"
    assert "after 8 blocks" in log.log.verdict_text


def test_equal_arms_that_are_watched_for_ever_are_rarely_told_apart() -> None:
    found = 0
    for seed in range(200):
        random, log = Random(seed), _Log()
        for _ in range(64):
            log.block(random.gauss(1.0, 0.2), random.gauss(1.0, 0.2))
        found += log.verdict != "no_difference"
    assert found <= 10


def test_a_long_experiment_takes_no_more_memory_and_loses_no_block() -> None:
    log = _Log()
    for _ in range(511):
        log.block(1.0, 3.0)
    assert log.compared()["e2e_mean_s"] == 511
    log.block(1.0, 3.0)
    assert log.compared()["e2e_mean_s"] == 256
    for _ in range(256):
        log.block(2.0, 6.0)
    assert log.compared()["e2e_mean_s"] == 256
    (found,) = [each for each in log.log.comparisons() if each.metric == "e2e_mean_s"]
    # 128 blocks of 4 parts each, all before the change, and 128 of 2 after it.
    assert found.a == pytest.approx((128 * 1.0 + 128 * 2.0) / 256)
    assert found.ratio == pytest.approx(3.0)
