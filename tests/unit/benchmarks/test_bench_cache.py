"""The benchmark of prefix caches: how restarts are taken together, and what hints cost."""

from __future__ import annotations

import pytest

from benchmarks.support.cache_hinted import hint_figures, hinted_shares
from benchmarks.support.cache_restarts import ARMS, QUARTER, pooled, restarted
from benchmarks.support.cache_shares import shares
from mileage.sim.cache_trace import CacheTrace
from mileage.sim.cache_warmup import WarmupEffect
from mileage.workload.synthetic.config import ConversationsConfig, SyntheticConfig
from mileage.workload.synthetic.generator import generate


def effect(cold: int, warm: int, *, swing: int = 0) -> WarmupEffect:
    return WarmupEffect(
        references=100,
        cold_hits=cold,
        warm_hits=warm,
        blocks_lost=0,
        blocks_loaded=0,
        loaded_s=None,
        loaded_bytes=0,
        swing_bytes=swing,
        growth_bytes=swing // 2,
    )


def test_restarts_are_added_up_before_they_are_divided() -> None:
    found = pooled([effect(1, 10, swing=8), effect(19, 30, swing=6)])
    assert (found.cold_ratio, found.warm_ratio, found.ratio) == (0.1, 0.2, 2.0)
    assert found.each == (10.0, 30 / 19)
    assert found.interval == (30 / 19, 10.0)
    assert (found.swing_bytes, found.growth_bytes) == (8, 4)


def test_equal_restarts_leave_no_doubt() -> None:
    assert pooled([effect(10, 25)] * 4).interval == (2.5, 2.5)


def test_the_worst_loss_by_a_hint_is_told() -> None:
    found = {"no hints": {1: 40.0, 5: 60.0}, "good": {1: 50.0, 5: 59.9}, "bad": {1: 40.5, 5: 58.0}}
    figures = hint_figures(found)
    assert figures["hints_cost_points"] == 2.0
    assert figures["hint_points"] == {"good": {1: 10.0, 5: -0.1}, "bad": {1: 0.5, 5: -2.0}}


@pytest.fixture(scope="module")
def chat() -> CacheTrace:
    config = SyntheticConfig(
        rate_rps=1.0,
        requests=500,
        seed=1,
        block_tokens=256,
        conversations=ConversationsConfig(turns=4, think_s=40),
    )
    return CacheTrace(generate(config))


def test_hints_help_where_they_are_right(chat: CacheTrace) -> None:
    none = shares(chat, ["return_aware"])["return_aware"]
    found = hinted_shares(chat, none, sizes=(10,))
    assert found["no hints"] == {10: none[10]}
    assert found["all right"][10] > found["80 % right"][10] > none[10]


def test_a_restart_each_five_minutes_with_a_whole_window(chat: CacheTrace) -> None:
    effects = restarted(chat, ARMS[QUARTER])
    assert len(effects) == int((chat.duration_s - 120) // 300) >= 1
    assert all(e.warm_hits >= e.cold_hits for e in effects)
