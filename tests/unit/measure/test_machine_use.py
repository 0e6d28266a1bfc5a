"""Use of a machine in a window, from totals at single moments."""

from __future__ import annotations

import pytest

from mileage.measure.machine_use import GroupSample, MachineSample, machine_use


def at(time_s: float, **changes: object) -> MachineSample:
    usual: dict[str, object] = {"at_s": time_s, "cores_busy_s": (0.0, 0.0)}
    return MachineSample(**{**usual, **changes})  # type: ignore[arg-type]


def test_cores_are_busy_by_what_their_totals_grew() -> None:
    samples = [at(0.0, cores_busy_s=(5.0, 1.0)), at(2.0, cores_busy_s=(7.0, 1.5))]
    found = machine_use(samples, start_s=0.0, end_s=2.0)
    assert (found.cpu_ratio, found.core_max_ratio) == (0.625, 1.0)


def test_the_window_is_between_the_samples_around_it() -> None:
    samples = [at(t, cores_busy_s=(t * t, 0.0)) for t in (0.0, 1.0, 2.0, 3.0)]
    found = machine_use(samples, start_s=1.2, end_s=1.8)
    assert found.window_s == 1.0
    assert found.core_max_ratio == 3.0  # the square grows from 1 to 4


def test_a_window_beyond_the_samples_takes_what_there_is() -> None:
    found = machine_use([at(1.0), at(3.0)], start_s=0.0, end_s=9.0)
    assert found.window_s == 2.0


@pytest.mark.parametrize(
    "samples",
    [pytest.param([], id="none"), pytest.param([at(1.0)], id="one")],
)
def test_fewer_than_two_samples_tell_nothing(samples: list[MachineSample]) -> None:
    with pytest.raises(ValueError, match="two samples"):
        machine_use(samples, start_s=0.0, end_s=1.0)


def test_the_busiest_thread_of_a_group_also_one_that_began_within() -> None:
    before = GroupSample(cpu_s=10.0, threads_s={1: 9.0})
    behind = GroupSample(cpu_s=13.0, threads_s={1: 10.0, 2: 2.0})
    samples = [at(0.0, groups={"g": before}), at(2.0, groups={"g": behind})]
    found = machine_use(samples, start_s=0.0, end_s=2.0).groups["g"]
    assert (found.cores, found.thread_ratio) == (1.5, 1.0)


def test_pressure_that_is_not_told_is_none_and_not_zero() -> None:
    samples = [at(0.0, pressure_cpu_s=1.0), at(2.0, pressure_cpu_s=2.0)]
    found = machine_use(samples, start_s=0.0, end_s=2.0)
    assert (found.pressure_cpu_ratio, found.pressure_io_ratio) == (0.5, None)


def test_the_interface_nearest_to_its_limit_is_named() -> None:
    limits = {"eth0": 1000.0, "eth1": 10.0}
    samples = [
        at(0.0, network_bytes={"eth0": 0, "eth1": 0}, network_limits=limits),
        at(1.0, network_bytes={"eth0": 100, "eth1": 9}, network_limits=limits),
    ]
    found = machine_use(samples, start_s=0.0, end_s=1.0)
    assert (found.network_name, found.network_ratio) == ("eth1", 0.9)
    assert found.network_bytes_per_s == 109.0
