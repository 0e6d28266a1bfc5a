"""Sampling: its pace, its bounds, and what a source that fails or hangs does to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.telemetry_pace import Pace
from mileage.scrape.telemetry_sampler import SamplerStatus, TelemetrySampler


class World:
    """A clock, a CPU clock and a source; ends after so many looks."""

    period_min_s = 0.1

    def __init__(self, looks: int, *, cpu_s: float = 0.0, wall_s: float = 0.0) -> None:
        self.now_s = self.cpu_now_s = 0.0
        self.left, self.cpu_s, self.wall_s = looks, cpu_s, wall_s
        self.at_s: list[float] = []
        self.error: Exception | None = None
        self.closed = 0

    def read(self, at_s: float) -> Sequence[float]:
        self.at_s.append(at_s)
        self.cpu_now_s += self.cpu_s
        self.now_s += self.wall_s
        if self.error is not None:
            raise self.error
        return (at_s,)

    def spend(self, at_s: float, cpu_s: float) -> Sequence[float]:
        self.at_s.append(at_s)
        self.cpu_now_s += cpu_s
        return (at_s,)

    def close(self) -> None:
        self.closed += 1

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        self.left -= 1
        return self.left == 0

    def run(self, **options: object) -> tuple[TelemetrySampler[float], SamplerStatus]:
        sampler = TelemetrySampler(
            self,
            name="test",
            clock=lambda: self.now_s,
            cpu_clock=lambda: self.cpu_now_s,
            wait=self.wait,
            **options,  # type: ignore[arg-type]  # options of a test
        )
        sampler.start()
        sampler._thread.join(60.0)
        return sampler, sampler.stop()


def test_it_looks_every_100_ms() -> None:
    world = World(600)
    sampler, status = world.run()
    assert world.at_s == pytest.approx([i / 10 for i in range(600)])
    assert sampler.samples() == world.at_s
    assert (status.looks, status.failed, status.period_s) == (600, 0, 0.1)
    assert world.closed == 1


def test_what_costs_more_than_1_percent_slows_itself_down() -> None:
    world = World(300, cpu_s=0.004)
    _, status = world.run()
    assert status.period_s == pytest.approx(0.4)
    assert status.cpu_ratio == pytest.approx(0.01, rel=0.02)


def test_a_costly_beginning_is_paid_off_bit_by_bit() -> None:
    world = World(200)
    costs = iter([0.02, *[0.0] * 500])
    world.read = lambda at_s: world.spend(at_s, next(costs))  # type: ignore[method-assign]
    _, status = world.run()
    gaps = [b - a for a, b in zip(world.at_s, world.at_s[1:], strict=False)]
    assert max(gaps) == pytest.approx(0.15)
    assert gaps[30:] == pytest.approx([0.1] * len(gaps[30:]))
    assert status.cpu_ratio <= 0.01


def test_it_is_as_fast_again_once_looks_are_cheap_again() -> None:
    pace = Pace(0.1, cost_ratio_max=0.01)
    for _ in range(20):
        pace.looked(0.01)
    assert pace.period_s == pytest.approx(1.0, rel=0.05)
    for _ in range(40):
        pace.looked(0.0001)
    assert pace.period_s == 0.1


def test_a_look_of_any_cost_waits_ten_seconds_at_most() -> None:
    pace = Pace(0.1, cost_ratio_max=0.01)
    pace.looked(60.0)
    assert pace.period_s == 0.1  # the first opens what is to be read
    pace.looked(60.0)
    assert pace.period_s == 10.0


def test_failures_in_a_row_are_tried_ever_less_often_and_told() -> None:
    world = World(10)
    world.error = EngineError("nvml", "no driver")
    sampler, status = world.run()
    gaps = [b - a for a, b in zip(world.at_s, world.at_s[1:], strict=False)]
    assert gaps[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert max(gaps) <= 10.0
    assert (status.looks, status.failed, status.error) == (10, 10, "nvml: no driver")
    assert sampler.samples() == []


def test_a_bug_in_a_source_does_not_end_the_sampler(caplog: pytest.LogCaptureFixture) -> None:
    world = World(5)
    world.error = KeyError("x")
    _, status = world.run()
    assert status.failed == 5
    assert status.error is not None
    assert "KeyError" in status.error
    assert len(caplog.records) == 1


def test_the_ring_is_bounded_and_tells_what_it_dropped() -> None:
    world = World(100)
    sampler, status = world.run(looks_max=10)
    assert sampler.samples() == pytest.approx([9.0 + i / 10 for i in range(10)])
    assert status.dropped == 90


def test_a_slow_look_is_not_made_up_for() -> None:
    world = World(5, wall_s=1.0)
    world.run()
    assert world.at_s == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_a_source_is_not_asked_more_often_than_it_knows_anew() -> None:
    world = World(3)
    world.period_min_s = 1.0
    world.run()
    assert world.at_s == pytest.approx([0.0, 1.0, 2.0])


def test_a_sink_is_told_each_look() -> None:
    told: list[Sequence[float]] = []
    world = World(3)
    world.run(sink=told.append)
    assert told == [(at_s,) for at_s in world.at_s]


def test_a_source_that_hangs_is_called_once_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mileage.scrape.telemetry_sampler._STOP_WAIT_S", 0.01)
    entered, released = threading.Event(), threading.Event()
    calls: list[float] = []
    now: Callable[[], float] = iter([0.0, 0.0, 0.0, *[7.5] * 50]).__next__

    class Hanging:
        period_min_s = 0.1

        def read(self, at_s: float) -> Sequence[float]:
            calls.append(at_s)
            entered.set()
            released.wait(60.0)
            return ()

        def close(self) -> None:
            calls.append(-1.0)

    sampler: TelemetrySampler[float] = TelemetrySampler(Hanging(), name="hangs", clock=now)
    sampler.start()
    assert entered.wait(60.0)
    status = sampler.stop()
    assert status.hanging_s == 7.5
    assert calls == [0.0]
    assert sampler.samples() == []
    released.set()
    sampler._thread.join(60.0)
    assert calls == [0.0, -1.0]
