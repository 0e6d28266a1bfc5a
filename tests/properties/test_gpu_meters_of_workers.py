"""Meters of several workers before one replica: together they share out about what there was."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from mileage.control.gpu_meter import GpuMeter

SECONDS = 300.0


class Load(NamedTuple):
    """Requests of one worker: how many a second, in bursts of how many, of what mean length."""

    rate: float
    burst: int
    length_s: float
    weight: int


class Shares(NamedTuple):
    """What the meters shared out, of what there was; then each worker's part against the truth."""

    total_ratio: float
    ratios: list[float]


def flights(load: Load, random: Random) -> list[tuple[float, float, int]]:
    """Start, end and weight of each request."""
    found, at_s = [], 0.0
    while (at_s := at_s + random.expovariate(load.rate / load.burst)) < SECONDS:
        for _ in range(load.burst):
            length_s = random.expovariate(1.0 / load.length_s)
            found.append((at_s, at_s + length_s, 1 + int(random.random() * 2 * load.weight)))
    return found


def share_out(loads: list[Load], seed: int, *, told: bool) -> Shares:
    """Each worker meters its own requests; once a second it is told what the others have."""
    random = Random(seed)
    meters = [GpuMeter() for _ in loads]
    truth = GpuMeter()
    events: list[tuple[float, int, str, int, int]] = []
    serial = 0
    for worker, load in enumerate(loads):
        for start_s, end_s, weight in flights(load, random):
            serial += 1
            events.append((start_s, serial, "start", worker, weight))
            events.append((end_s, serial, "end", worker, weight))
        phase_s = random.random()
        events += [(phase_s + n, 0, "tell", worker, 0) for n in range(int(SECONDS))]
    marks: dict[int, tuple[int, int]] = {}
    charged, true = [0] * len(loads), [0] * len(loads)
    reported = [0] * len(loads)
    for at_s, serial, kind, worker, weight in sorted(events):
        if kind == "start":
            marks[serial] = (meters[worker].start(weight, at_s), truth.start(weight, at_s))
        elif kind == "end":
            own, all_of_them = marks.pop(serial)
            charged[worker] += meters[worker].end(weight, own, at_s)
            true[worker] += truth.end(weight, all_of_them, at_s)
        else:
            reported[worker] = meters[worker].weight
            if told:
                meters[worker].set_others(sum(reported) - reported[worker], at_s)
    ratios = [one / other for one, other in zip(charged, true, strict=True)]
    return Shares(sum(charged) / sum(true), ratios)


CASES = [
    pytest.param([Load(20, 1, 0.5, 50)] * 2, id="two alike, busy"),
    pytest.param([Load(20, 1, 0.5, 50)] * 8, id="eight alike, busy"),
    pytest.param([Load(0.5, 1, 1.0, 50)] * 4, id="four, mostly idle"),
    pytest.param([Load(30, 1, 1.0, 50), Load(1, 1, 1.0, 50)], id="one has nearly all"),
    pytest.param([Load(4, 20, 2.0, 50), Load(4, 1, 2.0, 50)], id="one comes in bursts"),
    pytest.param([Load(5, 1, 0.1, 50), Load(1, 1, 8.0, 500)], id="short ones beside long ones"),
]


@pytest.mark.parametrize("loads", CASES)
def test_the_shares_of_all_workers_are_about_the_time_that_there_was(loads: list[Load]) -> None:
    found = share_out(loads, 1, told=True)
    assert found.total_ratio == pytest.approx(1.0, abs=0.03)
    assert all(ratio == pytest.approx(1.0, abs=0.15) for ratio in found.ratios)


@pytest.mark.parametrize("loads", CASES[:1])
def test_without_being_told_each_shares_out_all_of_it(loads: list[Load]) -> None:
    assert share_out(loads, 1, told=False).total_ratio == pytest.approx(2.0, abs=0.01)
