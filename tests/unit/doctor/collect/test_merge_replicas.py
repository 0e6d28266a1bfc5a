"""Several replicas as one document."""

from __future__ import annotations

from typing import Any

from mileage.doctor.collect.merge_replicas import merge_replicas
from tests.support.engine_pages import checked


def replica(running: Any, **settings: Any) -> dict[str, Any]:
    """A replica with its load."""
    return {
        "engine": {"name": "vllm"},
        "hardware": {"count": 2},
        "settings": settings,
        "signals": {"requests_running": running},
    }


def test_signals_become_one_value_for_each_replica() -> None:
    document = checked(merge_replicas([replica(3, block_size=16), replica(9, block_size=16)]))
    assert document["signals"]["requests_running"] == [3, 9]
    assert document["settings"] == {"block_size": 16}
    assert document["hardware"] == {"count": 4}
    assert document["topology"] == {"replicas": 2}


def test_ranks_of_a_replica_stand_beside_the_others() -> None:
    series = {"series": [{"value": 4}, {"value": 6}]}
    document = checked(merge_replicas([replica([1, 2]), replica({"min": 7}), replica(series)]))
    assert document["signals"]["requests_running"] == [1, 2, {"min": 7}, 5]


def test_a_setting_that_differs_is_left_out() -> None:
    assert "settings" not in merge_replicas([replica(1, block_size=16), replica(2, block_size=32)])


def test_a_setting_that_one_replica_tells_is_kept() -> None:
    assert merge_replicas([replica(1), replica(2, block_size=32)])["settings"] == {"block_size": 32}


def test_lengths_are_weighted_by_requests() -> None:
    parts = [
        {"workload": {"isl_tokens": 100}, "signals": {"requests_completed_count": 30}},
        {"workload": {"isl_tokens": 500}, "signals": {"requests_completed_count": 10}},
    ]
    assert checked(merge_replicas(parts))["workload"]["isl_tokens"] == 200


def test_one_replica_is_what_it_is() -> None:
    assert merge_replicas([replica(3)]) == replica(3)
    assert merge_replicas([]) == {}
