"""PauseWatch: collections and a late loop are counted, and the long ones kept with their time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mileage.gateway.pause_watch import PauseMetrics, PauseWatch


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Loop:
    """Calls when it is told to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: tuple[float, Callable[..., Any], tuple[Any, ...]] | None = None

    def call_later(self, delay_s: float, call: Callable[..., Any], *args: Any) -> Loop:
        self._asked = (self._clock.now_s + delay_s, call, args)
        return self

    def cancel(self) -> None:
        self._asked = None

    @property
    def waits(self) -> bool:
        return self._asked is not None

    def turn(self, *, late_s: float) -> None:
        assert self._asked is not None
        due_s, call, args = self._asked
        self._clock.now_s = due_s + late_s
        call(*args)


class Site:
    """A watch with its clocks; wall time is monotonic time and a thousand seconds."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.metrics = PauseMetrics()
        self.watch = PauseWatch(
            self.metrics, clock=self.clock, wall=lambda: self.clock.now_s + 1000.0
        )
        self.watch.start(self.loop)  # type: ignore[arg-type]

    def collection(self, length_s: float, generation: int) -> None:
        """What the interpreter does around one."""
        mine = gc.callbacks[-1]
        mine("start", {"generation": generation})
        self.clock.now_s += length_s
        mine("stop", {"generation": generation})


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.watch.stop()


def test_a_late_loop_is_counted_and_kept(site: Site) -> None:
    for late_s in (0.0, 0.001, 0.3):
        site.loop.turn(late_s=late_s)
    lag = site.metrics.lag.values[()]
    assert lag.count == 3
    assert lag.sum == pytest.approx(0.301)
    (pause,) = site.watch.recent()
    assert (pause.kind, pause.generation) == ("event_loop", None)
    assert pause.length_s == pytest.approx(0.3)
    assert pause.at_utc_s + pause.length_s == pytest.approx(site.clock.now_s + 1000.0)


def test_collections_are_counted_by_generation_and_long_ones_kept(site: Site) -> None:
    site.collection(0.001, 0)
    site.collection(0.2, 2)
    site.collection(0.1, 2)
    assert site.metrics.gc_s.values == {("0",): pytest.approx(0.001), ("2",): pytest.approx(0.3)}
    assert site.metrics.gc_count.values == {("0",): 1, ("2",): 2}
    assert [(p.kind, p.generation) for p in site.watch.recent()] == [("gc", 2), ("gc", 2)]


def test_real_collections_are_seen() -> None:
    metrics = PauseMetrics()
    watch = PauseWatch(metrics)
    watch.start(Loop(Clock()))  # type: ignore[arg-type]
    gc.collect()
    watch.stop()
    gc.collect()
    assert metrics.gc_count.values[("2",)] == 1
    assert metrics.gc_s.values[("2",)] > 0.0


def test_what_is_over_a_minute_ago_is_forgotten_and_no_more_than_256_are_kept(site: Site) -> None:
    for _ in range(300):
        site.collection(0.01, 1)
    assert len(site.watch.recent()) == 256
    site.clock.now_s += 61.0
    assert site.watch.recent() == ()


def test_it_ends_without_a_trace(site: Site) -> None:
    before = len(gc.callbacks)
    site.watch.stop()
    site.watch.stop()
    assert len(gc.callbacks) == before - 1
    assert not site.loop.waits
