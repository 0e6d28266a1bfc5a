"""HostSampler: its pace follows its cost, and what it keeps is bounded."""

from __future__ import annotations

import pytest

import mileage.scrape.host_sampler as module
from mileage.measure.tail_host import HostSample
from mileage.scrape.host_sampler import HostSampler


def period_after(costs_s: list[float], *, period_s: float = 0.05) -> float:
    sampler = HostSampler({}, clock=lambda: 0.0, period_s=period_s)
    for i, cost_s in enumerate(costs_s):
        sampler.take(HostSample(at_s=float(i)), cost_s)
    return sampler.stop().period_s


def test_a_cheap_look_keeps_the_pace_and_a_dear_one_slows_it_down() -> None:
    assert period_after([0.0001] * 20) == 0.05
    assert period_after([0.002] * 20) == pytest.approx(0.2)
    assert period_after([5.0] * 20) == 1.0


def test_the_pace_comes_back_when_looks_are_cheap_again() -> None:
    assert period_after([0.002] * 20 + [0.0001] * 40) == 0.05


def test_past_the_bound_every_other_sample_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLES_MAX", 8)
    sampler = HostSampler({}, clock=lambda: 0.0)
    for i in range(10):
        sampler.take(HostSample(at_s=float(i)), 0.0)
    series = sampler.stop()
    assert [sample.at_s for sample in series.samples] == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    assert series.period_s == 0.1
