"""How long small requests are held for company."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mileage.core.request import Request
from mileage.policy.batching import BatchVerdict, BatchWindow
from mileage.policy.merging import MergingConfig
from tests.support.controllers import request

GAP_S = 0.000_1


def small(request_id: int, **fields: Any) -> Request:
    return request(request_id, **{"endpoint": "embeddings", "batch_key": "k", **fields})


def window(*, keys_max: int = 100, **config: Any) -> BatchWindow:
    return BatchWindow(MergingConfig(**{"batch_items_max": 4, **config}), keys_max=keys_max)


def warm(batch: BatchWindow, *, gap_s: float = GAP_S, until_s: float = 0.0, **fields: Any) -> None:
    """Requests enough, so close together, that company is expected; the last at `until_s`."""
    for step in range(60, -1, -1):
        batch.offer(small(-1 - step, **fields), 0, until_s - step * gap_s)


def held(batch: BatchWindow, request_id: int, now_s: float, **fields: Any) -> float:
    verdict = batch.offer(small(request_id, **fields), 100, now_s)
    assert verdict.kind == "hold"
    assert verdict.due_s is not None
    return verdict.due_s


def joined(leader_id: int, *, full: bool = False) -> BatchVerdict:
    return BatchVerdict("join", leader_id, release=leader_id if full else None)


@pytest.mark.parametrize(
    ("config", "fields", "in_flight"),
    [
        pytest.param({}, {}, 3, id="below the load"),
        pytest.param({"batch_enabled": False}, {}, 100, id="batching is off"),
        pytest.param({}, {"batch_key": None}, 100, id="it cannot be batched"),
        pytest.param({}, {"batch_items": 4}, 100, id="it fills a call alone"),
        pytest.param({}, {"batch_items": 400}, 100, id="it is more than a batch"),
        pytest.param({"batch_window_max_s": 0.0}, {}, 100, id="no time to wait is given"),
    ],
)
def test_what_is_sent_at_once(
    config: dict[str, Any], fields: dict[str, Any], in_flight: int
) -> None:
    batch = window(**config)
    warm(batch)

    assert batch.offer(small(1, **fields), in_flight, GAP_S) == BatchVerdict("send")
    assert batch.next_due_s == math.inf


def test_the_first_is_held_the_next_join_and_a_full_one_is_released() -> None:
    batch = window()
    warm(batch)
    due_s = held(batch, 1, GAP_S)

    assert due_s == pytest.approx(GAP_S + 3 * GAP_S, rel=0.2)  # three more are awaited
    assert batch.next_due_s == due_s
    assert batch.offer(small(2), 100, 2 * GAP_S) == joined(1)
    assert batch.offer(small(3, batch_items=2), 0, 2 * GAP_S) == joined(1, full=True)
    assert batch.next_due_s == math.inf
    assert held(batch, 4, 3 * GAP_S) > 3 * GAP_S


def test_a_leader_without_room_is_released_and_the_next_one_leads() -> None:
    batch = window()
    warm(batch)
    held(batch, 1, GAP_S, batch_items=3)

    verdict = batch.offer(small(2, batch_items=2), 100, 2 * GAP_S)
    assert (verdict.kind, verdict.release) == ("hold", 1)
    assert batch.offer(small(3), 100, 2 * GAP_S) == joined(2)


def test_a_leader_without_room_is_released_by_one_that_is_sent() -> None:
    batch = window()
    warm(batch)
    held(batch, 1, GAP_S)

    assert batch.offer(small(2, batch_items=4), 100, 2 * GAP_S) == BatchVerdict("send", release=1)


def test_the_window_is_never_longer_than_its_bound() -> None:
    batch = window(batch_items_max=2048)
    warm(batch, gap_s=0.002)

    assert held(batch, 1, 0.002) == pytest.approx(0.012)


def test_nothing_is_held_when_nobody_is_expected_within_the_window() -> None:
    batch = window()
    warm(batch, gap_s=0.02)

    assert batch.offer(small(1), 100, 0.02).kind == "send"


def test_a_burst_after_a_long_pause_is_soon_seen_as_one() -> None:
    batch = window()
    warm(batch)

    kinds = [batch.offer(small(i), 100, 3600 + i * GAP_S).kind for i in range(8)]
    assert "hold" in kinds


def test_due_leaders_come_once_in_order_and_take_joiners_until_they_are_closed() -> None:
    batch = window()
    warm(batch, batch_key="a")
    warm(batch, batch_key="b", gap_s=2 * GAP_S)
    first_s, second_s = held(batch, 2, GAP_S, batch_key="b"), held(batch, 1, GAP_S, batch_key="a")
    assert second_s < first_s

    assert batch.due(GAP_S) == []
    assert batch.due(1.0) == [1, 2]
    assert batch.due(1.0) == []
    assert batch.offer(small(3, batch_key="a"), 100, 1.0) == joined(1)
    batch.close(1)
    assert batch.offer(small(4, batch_key="a"), 0, 1.0) == BatchVerdict("send")


def test_one_that_waits_in_the_queue_takes_joiners_without_being_due() -> None:
    batch = window()
    assert batch.offer(small(1), 0, 0.0).kind == "send"
    batch.open(small(1))
    batch.open(small(2))

    assert batch.next_due_s == math.inf
    assert batch.offer(small(3), 100, 0.1) == joined(1)
    assert batch.due(1e9) == []


def test_one_that_is_full_takes_no_joiners_while_it_waits_in_the_queue() -> None:
    batch = window()
    batch.offer(small(1), 0, 0.0)
    batch.open(small(1))
    assert batch.offer(small(2, batch_items=3), 100, 0.1) == joined(1, full=True)
    batch.open(small(1))

    assert batch.offer(small(3), 0, 0.2) == BatchVerdict("send")
    batch.close(1)
    batch.open(small(1))
    assert batch.offer(small(4), 0, 0.3) == joined(1)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        pytest.param({}, {"batch_key": None}, id="it cannot be batched"),
        pytest.param({}, {"batch_items": 4}, id="it is a batch by itself"),
        pytest.param({"batch_enabled": False}, {}, id="batching is off"),
    ],
)
def test_what_takes_no_joiners_in_the_queue(config: dict[str, Any], fields: dict[str, Any]) -> None:
    batch = window(**config)
    batch.offer(small(1, **fields), 0, 0.0)
    batch.open(small(1, **fields))

    assert batch.offer(small(2), 0, 0.1) == BatchVerdict("send")


def test_one_that_left_gives_its_room_back() -> None:
    batch = window()
    warm(batch)
    held(batch, 1, GAP_S)
    batch.offer(small(2, batch_items=2), 100, GAP_S)
    batch.left(1, 2)
    batch.left(99, 2)

    assert batch.offer(small(3, batch_items=2), 100, GAP_S) == joined(1)


def vain(batch: BatchWindow, request_id: int, now_s: float) -> float | None:
    """Offer one that stays alone; how long it was held."""
    verdict = batch.offer(small(request_id), 100, now_s)
    if verdict.due_s is None:
        return None
    assert batch.due(verdict.due_s) == [request_id]
    batch.close(request_id)
    return verdict.due_s - now_s


def test_windows_in_vain_become_shorter_until_none_is_held() -> None:
    batch = window(batch_items_max=64)
    warm(batch, gap_s=0.004)

    held_s = [vain(batch, i, 0.004 * i) for i in range(1, 4)]
    assert held_s[0] == pytest.approx(0.01)
    assert held_s[1] == pytest.approx(0.006_25)  # halved, and a quarter more: this one came in time
    assert held_s[2] is None


def test_company_that_would_have_come_brings_the_window_back() -> None:
    batch = window(batch_items_max=64)
    warm(batch, gap_s=0.004)
    for i in range(1, 4):
        vain(batch, i, 0.004 * i)
    warm(batch, gap_s=0.004, until_s=1.0)

    assert held(batch, 9, 1.004) == pytest.approx(1.014)


def test_tenants_are_batched_apart_unless_told_otherwise() -> None:
    for across, kind in ((False, "send"), (True, "join")):
        batch = window(across_tenants=across)
        batch.offer(small(1), 0, 0.0)
        batch.open(small(1))
        assert batch.offer(small(2, tenant="umbrella"), 0, 0.1).kind == kind


def test_past_its_bound_the_key_heard_of_least_recently_is_forgotten() -> None:
    batch = window(keys_max=2)
    warm(batch, batch_key="a")
    warm(batch, batch_key="b")
    warm(batch, batch_key="c")

    assert batch.offer(small(1, batch_key="a"), 100, GAP_S).kind == "send"
    held(batch, 2, GAP_S, batch_key="c")


def test_where_all_keys_are_open_a_new_one_is_not_held() -> None:
    batch = window(keys_max=1)
    warm(batch, batch_key="a")
    held(batch, 1, GAP_S, batch_key="a")
    warm(batch, batch_key="b")

    assert batch.offer(small(2, batch_key="b"), 100, GAP_S) == BatchVerdict("send")
    assert batch.offer(small(3, batch_key="a"), 100, GAP_S) == joined(1)


def test_a_clock_that_goes_back_is_no_gap() -> None:
    batch = window()
    warm(batch, until_s=100.0)

    assert held(batch, 1, 50.0) > 50.0
