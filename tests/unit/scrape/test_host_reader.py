"""What files of /proc say, and a reader over made-up ones: what is missing is told, not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.measure.tail_host import CpuTimes, SoftnetTotals
from mileage.scrape.host_files import (
    cpu_times,
    net_rx_softirqs,
    pressure_s,
    schedstat,
    softnet,
    stat_line,
    switches,
)
from mileage.scrape.host_reader import HostReader

STAT = (
    "77 (a (b) c) S 1 77 77 0 -1 4194560 1234 0 56 0 300 100 0 0 20 0 5 0 100 "
    "1000000 2000 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 0 42 0 0 0 0 0 0 0 0 0 0\n"
)
STATUS = "Name:\tx\nvoluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t7\n"
PSI = (
    "some avg10=9.26 avg60=5.63 avg300=5.02 total=14197082\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n"
)
SOFTNET = "05ce3002 00000001 00000014 00000000\n06cf2ddd 0000000a 00000013 00000000\n"
SOFTIRQS = "      CPU0  CPU1\n  NET_TX:  4  0\n  NET_RX:  92742232  108453106\n"
CPUS = (
    "cpu  3 0 0 0 0 0 400 120 0 0\n"
    "cpu0 1 0 0 0 0 0 100 50 0 0\n"
    "cpu2 1 0 0 0 0 0 300 70 0 0\n"
    "intr 5\n"
)


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    line = stat_line(STAT)
    assert (line.state, line.minor_faults, line.major_faults) == ("S", 1234, 56)
    assert (line.cpu, line.blocked_ticks) == (3, 42)


def test_each_file_is_read() -> None:
    assert schedstat("2000000000 500000000 9\n") == (2.0, 0.5)
    assert switches(STATUS) == (11, 7)
    assert pressure_s(PSI, "some") == pytest.approx(14.197082)
    assert pressure_s(PSI, "full") == pytest.approx(2.5)
    assert softnet(SOFTNET) == SoftnetTotals(dropped=11, squeezed=39)
    assert net_rx_softirqs(SOFTIRQS) == 201195338
    times = cpu_times(CPUS, 100)
    assert times == (CpuTimes(1.0, 0.5), CpuTimes(0.0, 0.0), CpuTimes(3.0, 0.7))


@pytest.mark.parametrize("text", ["", "1 2", "x y z", "77 S 1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        schedstat(text)
    with pytest.raises(ValueError, match=r"."):
        stat_line(text)


def test_figures_that_a_kernel_does_not_have_are_unknown() -> None:
    assert switches("Name: x\n") == (None, None)
    assert pressure_s("some avg10=0.0 total=5\n", "full") is None
    assert net_rx_softirqs("") is None
    assert cpu_times("", 100) == ()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def proc_of(directory: Path, *, threads: tuple[int, ...] = (77, 78)) -> Path:
    for tid in threads:
        write(directory / "77" / "task" / str(tid) / "schedstat", f"{tid}000000000 5000000000 3\n")
    write(directory / "77" / "task" / "77" / "stat", STAT)
    write(directory / "77" / "task" / "77" / "status", STATUS)
    return directory


def test_of_an_engine_all_threads_are_looked_at_of_others_the_main_one(tmp_path: Path) -> None:
    reader = HostReader(
        {"engine": [77], "gateway": [77]},
        clock=lambda: 5.0,
        proc=proc_of(tmp_path),
        ticks_per_s=100,
    )
    engine, gateway = reader.look().processes
    reader.close()
    assert (engine.role, engine.wait_s, engine.run_s) == ("engine", {77: 5.0, 78: 5.0}, 155.0)
    assert (gateway.role, gateway.wait_s) == ("gateway", {77: 5.0})
    assert engine.blocked_s is None  # without delay accounting its figure is 0, and means nothing


def test_delay_accounting_is_used_where_it_is_on(tmp_path: Path) -> None:
    write(tmp_path / "sys" / "kernel" / "task_delayacct", "1\n")
    reader = HostReader(
        {"engine": [77]}, clock=lambda: 5.0, proc=proc_of(tmp_path), ticks_per_s=100
    )
    (process,) = reader.look().processes
    reader.close()
    assert process.blocked_s == pytest.approx(0.42)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    reader = HostReader({"engine": [1]}, clock=lambda: 5.0, proc=tmp_path, ticks_per_s=100)
    sample = reader.look()
    reader.close()
    assert sample.processes == ()
    assert sample.cpus == ()
    assert sample.pressure is not None
    assert sample.pressure.io_s is None
    assert set(reader.missing) == {
        "engine 1",
        "/proc/pressure/cpu",
        "/proc/pressure/memory",
        "/proc/pressure/io",
        "/proc/softirqs",
        "/proc/stat",
        "/proc/net/softnet_stat",
    }


def test_a_process_that_ends_is_left_out_from_then_on(tmp_path: Path) -> None:
    proc = proc_of(tmp_path)
    reader = HostReader({"engine": [77]}, clock=lambda: 5.0, proc=proc, ticks_per_s=100)
    assert len(reader.look().processes) == 1
    write(proc / "77" / "task" / "77" / "stat", STAT.replace(" S ", " Z "))
    assert reader.look().processes == ()
    reader.close()
    assert "not to the end" in reader.missing["engine 77"]


def test_threads_that_come_and_go_are_followed(tmp_path: Path) -> None:
    proc = proc_of(tmp_path)
    reader = HostReader({"engine": [77]}, clock=lambda: 5.0, proc=proc, ticks_per_s=100)
    proc_of(proc, threads=(79,))
    (proc / "77" / "task" / "78" / "schedstat").unlink()
    (proc / "77" / "task" / "78").rmdir()
    reader.refresh()
    (process,) = reader.look().processes
    reader.close()
    assert set(process.wait_s) == {79}  # the other one has done nothing since


def test_threads_that_do_nothing_are_not_looked_at(tmp_path: Path) -> None:
    proc = proc_of(tmp_path)
    reader = HostReader({"engine": [77]}, clock=lambda: 5.0, proc=proc, ticks_per_s=100)
    assert set(reader.look().processes[0].wait_s) == {77, 78}
    write(proc / "77" / "task" / "77" / "schedstat", "99000000000 5000000000 3\n")
    reader.refresh()
    assert set(reader.look().processes[0].wait_s) == {77}
    write(proc / "77" / "task" / "78" / "schedstat", "99000000000 5000000000 3\n")
    reader.refresh()
    assert set(reader.look().processes[0].wait_s) == {78}
    reader.close()


def test_figures_that_cost_much_are_in_each_fourth_sample(tmp_path: Path) -> None:
    write(tmp_path / "stat", CPUS)
    reader = HostReader({}, clock=lambda: 5.0, proc=tmp_path, ticks_per_s=100)
    seen = [bool(reader.look().cpus) for _ in range(6)]
    reader.close()
    assert seen == [True, False, False, False, True, False]
