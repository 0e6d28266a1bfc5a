"""Own collections: the long ones are kept, with their time."""

from __future__ import annotations

import gc

import pytest

from mileage.scrape.host_gc import GcWatch


def test_long_collections_are_kept_and_short_ones_not() -> None:
    times = iter([1.0, 1.0001, 2.0, 2.3])
    watch = GcWatch(clock=lambda: next(times))
    watch.start()
    collected = gc.callbacks[-1]
    for generation in (0, 2):
        collected("start", {"generation": generation})
        collected("stop", {"generation": generation})
    (pause,) = watch.stop()
    assert collected not in gc.callbacks
    assert (pause.cause, pause.role, pause.detail) == ("gc", "generator", "generation 2")
    assert [pause.start_s, pause.end_s, pause.busy_s] == pytest.approx([2.0, 2.3, 0.3])


def test_a_collection_that_was_on_when_it_began_is_left_out() -> None:
    watch = GcWatch(clock=lambda: 1.0)
    watch.start()
    gc.callbacks[-1]("stop", {"generation": 2})
    assert watch.stop() == []
