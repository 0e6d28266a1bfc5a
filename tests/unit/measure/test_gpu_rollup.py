"""A minute of samples as mean, highest and p95."""

from __future__ import annotations

from typing import Any

from mileage.measure.gpu_rollup import FigureRollup, MinuteRollups, rolled_up
from mileage.measure.gpu_sample import GpuId, GpuSample


def gpu(number: int = 0, **figures: Any) -> GpuSample:
    return GpuSample(gpu=GpuId(number=str(number)), at_s=0.0, **figures)


def test_a_figure_counts_where_it_is_known() -> None:
    samples = [gpu(power_w=float(w)) for w in range(1, 101)] + [gpu(throttle_reasons=frozenset())]
    rollup = rolled_up(samples, minute_at_utc_s=60)
    assert rollup.figures == {"power_w": FigureRollup(50.5, 100.0, 95.0, 100)}
    assert rollup.samples == 101


def test_energy_is_a_difference_and_unknown_where_it_began_anew() -> None:
    grown = [gpu(energy_j=5.0), gpu(), gpu(energy_j=8.0)]
    assert rolled_up(grown, minute_at_utc_s=0).energy_j == 3.0
    fallen = [gpu(energy_j=5.0), gpu(energy_j=1.0), gpu(energy_j=9.0)]
    assert rolled_up(fallen, minute_at_utc_s=0).energy_j is None


def test_throttling_is_a_share_of_the_looks_that_tell() -> None:
    cap = frozenset({"sw_power_cap"})
    samples = [gpu(throttle_reasons=cap), gpu(throttle_reasons=frozenset()), gpu()]
    assert rolled_up(samples, minute_at_utc_s=0).throttled == {"sw_power_cap": 0.5}


def test_a_minute_is_given_when_the_next_begins() -> None:
    minutes = MinuteRollups()
    assert minutes.add([gpu(0), gpu(1)], at_utc_s=119.9) == ()
    ended = minutes.add([gpu(0)], at_utc_s=120.0)
    assert [(r.minute_at_utc_s, r.gpu.number, r.samples) for r in ended] == [
        (60, "0", 1),
        (60, "1", 1),
    ]
    assert minutes.add([gpu(0)], at_utc_s=118.0) == ()  # the clock went back
    assert [(r.minute_at_utc_s, r.samples) for r in minutes.close()] == [(120, 2)]
    assert minutes.close() == ()


def test_a_minute_of_too_many_samples_is_thinned_out_and_keeps_its_ends() -> None:
    minutes = MinuteRollups()
    for i in range(20_000):
        minutes.add([gpu(energy_j=float(i))], at_utc_s=1.0)
    (rollup,) = minutes.close()
    assert rollup.samples <= 6_000
    assert rollup.energy_j == 19_999.0
