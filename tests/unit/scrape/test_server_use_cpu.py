"""CPU and memory of a server's processes, played by the test; quotas of control groups; RAPL."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mileage.core.errors import EngineError
from mileage.scrape.server_use_cpu import CpuLook, CpuUse, cores_of
from mileage.scrape.server_use_energy import RaplEnergy
from mileage.scrape.server_use_process import ServerProcesses

CORES = cores_of(os.getpid())


class Process:
    """A process whose figures the test sets. Its pid is ours, so that its cores can be read."""

    def __init__(self, used_s: float = 0.0, rss: int = 100, pss: int | None = 60) -> None:
        self.pid = os.getpid()
        self.used_s, self.rss, self.pss, self.lives = used_s, rss, pss, True
        self.descendants: list[Process] = []

    def cpu_times(self) -> Any:
        if not self.lives:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(user=self.used_s, system=0.0)

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=self.rss)

    def memory_full_info(self) -> Any:
        if self.pss is None:
            raise psutil.AccessDenied(self.pid)
        return SimpleNamespace(pss=self.pss)

    def is_running(self) -> bool:
        return self.lives

    def status(self) -> str:
        return str(psutil.STATUS_RUNNING)

    def children(self, recursive: bool) -> list[Process]:
        return self.descendants


class Server:
    """A server's processes, found anew at each search."""

    def __init__(self, *engine: Process, gateway: tuple[Process, ...] = ()) -> None:
        self.engine, self.gateway = list(engine), gateway
        self.now_s = 0.0
        self.use = CpuUse(self.find, clock=lambda: self.now_s)

    def find(self) -> ServerProcesses:
        if not self.engine:
            raise EngineError("server", "no process listens")
        engine: Any = tuple(self.engine)
        gateway: Any = self.gateway
        return ServerProcesses(engine, gateway, engine[:1], gateway)

    def after(self, seconds: float, **used_s: float) -> CpuLook:
        self.now_s += seconds
        return self.use.look()


def test_cpu_seconds_of_all_processes_per_second_and_core() -> None:
    first, second = Process(5.0), Process(7.0)
    server = Server(first, second)
    assert server.after(0.0).utilisation_ratio is None
    first.used_s += 0.5 * CORES
    second.used_s += 0.5 * CORES
    assert server.after(2.0).utilisation_ratio == pytest.approx(0.5)
    first.used_s += 9 * CORES
    assert server.after(1.0).utilisation_ratio == 1.0


def test_a_process_that_came_in_between_counts_from_its_start() -> None:
    first, second = Process(5.0), Process(CORES)
    second.pid = 0  # another than its parent's
    server = Server(first)
    server.after(0.0)
    first.descendants.append(second)
    assert server.after(4.0).utilisation_ratio == 0.0  # descendants are not looked for each time
    assert server.after(4.0).utilisation_ratio == pytest.approx(0.25)


def test_a_gateway_is_told_apart_from_its_engine() -> None:
    engine, gateway = Process(rss=100), Process(rss=7)
    server = Server(engine, gateway=(gateway,))
    server.after(0.0)
    engine.used_s, gateway.used_s = 0.5 * CORES, 0.3
    look = server.after(1.0)
    assert look.utilisation_ratio == pytest.approx(0.5)
    assert look.gateway_cpu_cores == pytest.approx(0.3)
    assert (look.memory_bytes, look.gateway_memory_bytes) == (100, 7)


def test_another_process_is_a_new_server_whose_first_look_knows_no_use() -> None:
    old, new = Process(5.0), Process(1.0)
    server = Server(old)
    assert not server.after(0.0).is_new
    old.lives = False
    server.engine.clear()
    with pytest.raises(EngineError, match="no process listens"):
        server.after(1.0)
    assert server.use.is_away
    server.engine.append(new)
    look = server.after(1.0)
    assert look.is_new
    assert look.utilisation_ratio is None
    assert not server.after(1.0).is_new


@pytest.mark.parametrize(
    ("processes", "memory"),
    [
        pytest.param([Process()], (100, "process_rss"), id="one process: its resident memory"),
        pytest.param(
            [Process(), Process()], (120, "process_pss"), id="several: what they share counts once"
        ),
        pytest.param(
            [Process(), Process(pss=None)], (200, "process_rss"), id="where that cannot be read"
        ),
    ],
)
def test_memory(processes: list[Process], memory: tuple[int, str]) -> None:
    look = Server(*processes).after(0.0)
    assert (look.memory_bytes, look.memory_basis) == memory


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        pytest.param("0::/a/b\n", {"a/cpu.max": "50000 100000"}, 0.5, id="of a group above it"),
        pytest.param("0::/a\n", {"a/cpu.max": "max 100000"}, CORES, id="no quota"),
        pytest.param(
            "0::/a\n",
            {"a/cpu.max": "25000 100000", "cpu.max": "50000 100000"},
            0.25,
            id="the least",
        ),
        pytest.param(
            "3:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "20000", "cpu/a/cpu.cfs_period_us": "100000"},
            0.2,
            id="version 1",
        ),
        pytest.param(
            "3:cpu:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"},
            CORES,
            id="version 1, no quota",
        ),
        pytest.param("nonsense\n", {}, CORES, id="what is no list of groups"),
    ],
)
def test_quota_of_control_groups(
    tmp_path: Path, cgroup: str, files: dict[str, str], cores: float
) -> None:
    (tmp_path / "proc" / str(os.getpid())).mkdir(parents=True)
    (tmp_path / "proc" / str(os.getpid()) / "cgroup").write_text(cgroup, encoding="ascii")
    for name, text in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    assert cores_of(os.getpid(), tmp_path / "proc", tmp_path / "fs") == pytest.approx(cores)


def zone(powercap: Path, name: str, joules: float, range_j: float = 1000.0) -> None:
    (powercap / name).mkdir(parents=True, exist_ok=True)
    for file, value in (("energy_uj", joules), ("max_energy_range_uj", range_j)):
        (powercap / name / file).write_text(f"{round(value * 1e6)}\n", encoding="ascii")


def test_energy_of_all_packages_but_not_twice_of_what_is_within_one(tmp_path: Path) -> None:
    rapl = RaplEnergy(tmp_path)
    zone(tmp_path, "intel-rapl:0", 10.0)
    zone(tmp_path, "intel-rapl:1", 990.0)
    zone(tmp_path, "intel-rapl:0:0", 4.0)
    assert rapl.read() is None
    zone(tmp_path, "intel-rapl:0", 13.0)
    zone(tmp_path, "intel-rapl:1", 5.0)  # it went round at 1000
    zone(tmp_path, "intel-rapl:0:0", 6.0)
    assert rapl.read() == pytest.approx(3.0 + 15.0)


def test_energy_where_none_is_counted(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not count"):
        RaplEnergy(tmp_path).read()
    (tmp_path / "intel-rapl:0").mkdir()
    with pytest.raises(EngineError, match="cannot be read"):
        RaplEnergy(tmp_path).read()
