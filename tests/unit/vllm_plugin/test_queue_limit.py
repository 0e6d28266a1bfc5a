"""The queue limit counts what is in flight and tells when to come back."""

from __future__ import annotations

from mileage.vllm_plugin.queue_limit import QueueLimit


def test_it_lets_in_as_many_as_it_is_told() -> None:
    queue = QueueLimit()
    assert [queue.enter(2) for _ in range(3)] == [True, True, False]
    assert queue.refused_total == 1
    assert queue.enter(None)
    queue.leave(1.0)
    queue.leave(1.0)
    assert queue.enter(2)
    assert queue.in_flight == 2


def test_a_place_is_free_after_the_mean_time_of_a_request_over_those_that_run() -> None:
    queue = QueueLimit()
    assert queue.retry_after_s(4) == 1
    for _ in range(3):
        queue.enter(None)
        queue.leave(20.0)
    assert queue.retry_after_s(4) == 5
    assert queue.retry_after_s(100) == 1
    queue.enter(None)
    queue.leave(40_000.0)
    assert queue.retry_after_s(1) == 60
