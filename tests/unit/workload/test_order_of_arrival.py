"""Records out of order are put in order within bounds; equal timestamps can be spread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from random import Random

import pytest

from mileage.core.errors import TraceError
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.source import read_trace
from tests.support.statistics_by_hand import ks_passes
from tests.support.traces import MOONCAKE, read


def table(times: list[float]) -> list[bytes]:
    return [b"time,isl,osl", *(f"{t!r},{i + 1},1".encode() for i, t in enumerate(times))]


def test_a_shuffle_within_the_bound_is_undone() -> None:
    rng = Random(3)
    times = sorted(rng.random() * 1000 for _ in range(5000))
    shuffled = list(times)
    for begin in range(0, 5000, 50):
        part = shuffled[begin : begin + 50]
        rng.shuffle(part)
        shuffled[begin : begin + 50] = part
    tally = ReadTally()
    found = read(table(shuffled), tally=tally, reorder_places=50)
    assert [r.arrived_s for r in found] == pytest.approx([t - times[0] for t in times])
    assert sorted(r.prompt_tokens for r in found) == list(range(1, 5001))
    assert tally.reordered > 2000


def test_requests_of_one_moment_stay_as_they_came() -> None:
    found = read(table([5.0, 1.0, 1.0, 1.0, 0.0]))
    assert [r.prompt_tokens for r in found] == [5, 2, 3, 4, 1]
    assert [r.arrived_s for r in found] == [0.0, 1.0, 1.0, 1.0, 5.0]


def test_a_record_that_is_too_late_is_an_error() -> None:
    with pytest.raises(TraceError, match="order of arrival") as caught:
        read(table([float(i) for i in range(1, 100)] + [0.0]), reorder_places=10)
    assert caught.value.line == 101


def test_memory_is_that_of_a_few_records() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        yield b"time,isl,osl"
        while True:
            taken += 1
            yield f"{taken},1,1".encode()

    options = ReadOptions(reorder_places=10)
    found = list(islice(read_trace(endless(), path="t", options=options), 1000))
    assert len(found) == 1000
    assert taken < 1050


def test_mooncake_steps_are_as_recorded_by_default() -> None:
    assert [r.arrived_s for r in read(MOONCAKE)] == [0.0, 0.0, 2.999]


def test_even_spreading_fills_each_step() -> None:
    found = read([*MOONCAKE, MOONCAKE[2]], spread="even", spread_max_s=2.0)
    # The first step is 2.999 s long and is spread over 2 s at most, as is the last one.
    assert [r.arrived_s for r in found] == [0.0, 1.0, 2.999, 3.999]


def test_random_spreading_is_uniform_seeded_and_in_order() -> None:
    lines = [MOONCAKE[2]] * 4000
    first, again, other = (read(lines, spread="random", seed=s) for s in (1, 1, 2))
    times = [r.arrived_s for r in first]
    assert first == again != other
    assert all(a <= b for a, b in pairwise(times))
    assert ks_passes([(t - 2.999) / 3.0 for t in times], lambda x: x)
