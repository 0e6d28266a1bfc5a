"""The host of a server, and its processor in place of a GPU: from a /proc that a test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from mileage.core.errors import EngineError
from mileage.measure.gpu_sample import GpuSample
from mileage.measure.serving_host import HostMoment
from mileage.scrape.gpu_host import HostTelemetry
from mileage.scrape.memory_traffic import MemoryTraffic
from mileage.scrape.server_use_energy import RaplEnergy
from mileage.scrape.thread_use import ThreadLook, ThreadUse


class Proc:
    """A /proc of a machine with two cores; all times in seconds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stat(0.0, 0.0, 0)
        for name in ("cpu", "memory", "io"):
            self.write(f"pressure/{name}", "some total=0\nfull total=0\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")

    def stat(self, busy_0_s: float, busy_1_s: float, switches: int) -> None:
        ticks = [round(s * 100) for s in (busy_0_s + busy_1_s, busy_0_s, busy_1_s)]
        lines = [
            f"{name} {busy} 0 0 999 0 0 0 7 0 0"
            for name, busy in zip(("cpu", "cpu0", "cpu1"), ticks, strict=True)
        ]
        self.write("stat", "\n".join([*lines, "intr 5", f"ctxt {switches}"]) + "\n")

    def thread(self, pid: int, tid: int, ran_s: float, waited_s: float = 0.0) -> None:
        text = f"{round(ran_s * 1e9)} {round(waited_s * 1e9)} 3\n"
        self.write(f"{pid}/task/{tid}/schedstat", text)
        self.write(f"{pid}/task/{tid}/comm", f"t{tid}\n")


def test_threads_are_told_to_the_nanosecond(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    use = ThreadUse((7,), proc=tmp_path)
    proc.thread(7, 7, 1.0)
    proc.thread(7, 8, 5.0, 1.0)
    proc.thread(7, 9, 2.0)
    assert use.look(10.0) == ThreadLook(None, None, "", None)
    proc.thread(7, 7, 1.02)
    proc.thread(7, 8, 5.09, 1.05)
    look = use.look(10.1)
    assert look.cores == pytest.approx(1.1)
    assert look.busiest_ratio == pytest.approx(0.9)
    assert look.busiest_name == "t8"
    assert look.wait_max_ratio == pytest.approx(0.5)
    use.close()


def test_threads_that_do_nothing_are_not_looked_at_until_they_work(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.thread(7, 7, 1.0)
    use = ThreadUse((7,), proc=tmp_path)
    use.look(0.0)
    assert use.look(0.1).cores == 0.0
    proc.thread(7, 7, 1.4)
    assert use.look(0.6) == ThreadLook(0.0, 0.0, "", None)  # not yet seen
    assert use.look(1.1).cores == pytest.approx(0.4)  # since it was last looked at
    proc.thread(7, 7, 1.9)
    assert use.look(1.6).cores == pytest.approx(1.0)
    use.close()


def test_a_process_that_is_gone_is_told(tmp_path: Path) -> None:
    use = ThreadUse((7,), proc=tmp_path)
    assert not use.is_gone
    assert use.look(0.0).cores is None
    assert use.is_gone


def telemetry(
    root: Path, pids: Mapping[str, Sequence[int]], *, as_gpu: bool = True
) -> HostTelemetry:
    return HostTelemetry(
        lambda: pids,
        as_gpu=as_gpu,
        memory_gb_per_s=10.0,
        proc=root / "proc",
        cgroups=root / "cgroup",
        rapl=RaplEnergy(root / "powercap"),
        traffic=MemoryTraffic(root / "mon_data"),
    )


def test_the_processor_stands_for_a_gpu(tmp_path: Path) -> None:
    pid = psutil.Process().pid
    proc = Proc(tmp_path / "proc")
    traffic = tmp_path / "mon_data" / "mon_L3_00" / "mbm_total_bytes"
    traffic.parent.mkdir(parents=True)
    traffic.write_text("1000\n", "ascii")
    proc.thread(pid, pid, 1.0)
    proc.write(f"{pid}/cgroup", "0::/\n")
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "cpu.max").write_text("50000 100000\n", "ascii")
    source = telemetry(tmp_path, {"engine": [pid]})
    source.read(10.0)
    proc.thread(pid, pid, 1.2)
    proc.stat(1.0, 0.5, 40)
    proc.write("pressure/cpu", "some avg10=1 total=250000\n")
    traffic.write_text("5000001000\n", "ascii")
    moment, sample = source.read(11.0)
    source.close()
    assert isinstance(moment, HostMoment)
    assert isinstance(sample, GpuSample)
    assert (moment.cpu_ratio, moment.core_max_ratio) == (0.75, 1.0)
    assert (moment.switches_per_s, moment.pressure_cpu_ratio) == (40.0, 0.25)
    assert moment.thread_max_ratio == pytest.approx(0.2)
    assert (sample.basis, sample.pids) == ("cpu", (pid,))
    assert sample.sm_active_ratio == pytest.approx(0.4)  # of the half core that it may use
    assert sample.gpu_util_ratio == pytest.approx(0.2)
    assert sample.dram_active_ratio == pytest.approx(0.5)
    assert sample.memory_used_bytes is not None


def test_beside_real_gpus_only_the_host_is_told_and_no_process_is_needed(tmp_path: Path) -> None:
    Proc(tmp_path / "proc")
    source = telemetry(tmp_path, {}, as_gpu=False)
    (moment,) = source.read(0.0)
    source.close()
    assert isinstance(moment, HostMoment)


def test_without_a_process_there_is_nothing_in_place_of_a_gpu(tmp_path: Path) -> None:
    Proc(tmp_path / "proc")
    source = telemetry(tmp_path, {})
    with pytest.raises(EngineError, match="no process"):
        source.read(0.0)
    source.close()


def test_processes_are_sought_less_and_less_often_while_there_are_none(tmp_path: Path) -> None:
    Proc(tmp_path / "proc")
    asked: list[float] = []
    now_s = 0.0

    def find() -> Mapping[str, Sequence[int]]:
        asked.append(now_s)
        return {}

    source = HostTelemetry(
        find,
        as_gpu=False,
        proc=tmp_path / "proc",
        cgroups=tmp_path,
        traffic=MemoryTraffic(tmp_path),
    )
    for look in range(420):
        now_s = look / 10
        source.read(now_s)
    source.close()
    assert asked == [0.0, 5.0, 15.0, 35.0]


def test_a_cache_that_does_not_count_makes_the_traffic_unknown(tmp_path: Path) -> None:
    for number, text in enumerate(("100", "Unavailable")):
        file = tmp_path / f"mon_L3_0{number}" / "mbm_total_bytes"
        file.parent.mkdir()
        file.write_text(text, "ascii")
    traffic = MemoryTraffic(tmp_path)
    assert traffic.is_there
    traffic.read(0.0)
    assert traffic.read(1.0) is None
