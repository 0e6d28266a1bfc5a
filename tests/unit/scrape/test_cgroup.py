"""Which container, pod or job a process belongs to, and how near its groups are to their limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.measure.gpu_sample import GpuOwner
from mileage.scrape.cgroup import Binding, CgroupLine, binding_of, cgroup_lines, owner_of_pid
from mileage.scrape.cgroup_use import CgroupLook, CgroupUse

ID = "0123456789abcdef" * 4
UID = "12345678-1234-1234-1234-123456789abc"
UID_ = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "binding"),
    [
        pytest.param("/", Binding(), id="hidden by a namespace"),
        pytest.param("/user.slice/user-1000.slice/session-2.scope", Binding(), id="a login"),
        pytest.param(f"/docker/{ID}", Binding(ID), id="Docker, cgroupfs"),
        pytest.param(f"/system.slice/docker-{ID}.scope", Binding(ID), id="Docker, systemd"),
        pytest.param(f"/machine.slice/libpod-{ID}.scope/container", Binding(ID), id="Podman"),
        pytest.param(f"/machine.slice/libpod-conmon-{ID}.scope", Binding(), id="its monitor"),
        pytest.param(
            f"/kubepods/burstable/pod{UID}/{ID}", Binding(ID, UID, "burstable"), id="cgroupfs"
        ),
        pytest.param(f"/kubepods/pod{UID}/{ID}", Binding(ID, UID, "guaranteed"), id="guaranteed"),
        pytest.param(
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice"
            f"/cri-containerd-{ID}.scope",
            Binding(ID, UID, "besteffort"),
            id="systemd, containerd",
        ),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-{ID}.scope",
            Binding(ID, UID, "guaranteed"),
            id="systemd, CRI-O",
        ),
        pytest.param(
            f"/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice"
            f":cri-containerd:{ID}",
            Binding(),
            id="one part with colons",
        ),
        pytest.param(
            f"/docker/{'f' * 64}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable"
            f".slice/kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
            Binding(ID, UID, "burstable"),
            id="kind: the innermost container",
        ),
        pytest.param(
            f"/kubepods/besteffort/pod{'a' * 32}/{ID}",
            Binding(ID, "a" * 32, "besteffort"),
            id="a static pod",
        ),
        pytest.param(
            "/system.slice/slurmstepd.scope/job_417/step_0/user/task_0",
            Binding(job="417"),
            id="Slurm",
        ),
        pytest.param(f"/docker/{ID[:12]}", Binding(), id="too short an id"),
    ],
)
def test_what_a_path_tells(path: str, binding: Binding) -> None:
    assert binding_of((CgroupLine((), path),)) == binding


def test_lines_of_both_versions() -> None:
    text = f"12:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/docker/{ID}\nnonsense\n:x:/y\n3:memory:\n"
    lines = cgroup_lines(text)
    assert lines == (
        CgroupLine(("cpu", "cpuacct"), "/a"),
        CgroupLine(("name=systemd",), "/b"),
        CgroupLine((), f"/docker/{ID}"),
    )
    assert binding_of(lines) == Binding(ID)


def test_the_owner_of_a_process(tmp_path: Path) -> None:
    for pid, path in {1: "/", 2: f"/kubepods/pod{UID}/{ID}", 3: "/slurm/uid_1/job_5"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{path}\n", "ascii")
    owners = [owner_of_pid(pid, tmp_path) for pid in (1, 2, 3, 4)]
    assert owners == [None, GpuOwner("", UID, ID), GpuOwner("", "job_5"), None]


class Tree:
    """A /proc and a /sys/fs/cgroup."""

    def __init__(self, root: Path, cgroup: str) -> None:
        self.proc, self.cgroups = root / "proc", root / "cgroup"
        (self.proc / "7").mkdir(parents=True)
        (self.proc / "7" / "cgroup").write_text(cgroup, "ascii")

    def write(self, name: str, text: str) -> None:
        path = self.cgroups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")

    def use(self) -> CgroupUse:
        return CgroupUse(7, proc=self.proc, cgroups=self.cgroups)


def test_version_2_looks_at_the_group_and_those_above_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "0::/pod/box\n")
    tree.write("pod/box/cpu.max", "max 100000\n")
    tree.write("pod/box/memory.current", "25\n")
    tree.write("pod/box/memory.max", "100\n")
    tree.write("pod/cpu.max", "200000 100000\n")
    tree.write("pod/cpu.stat", "usage_usec 1000000\nnr_periods 10\nnr_throttled 2\n")
    tree.write("pod/memory.current", "90\n")
    tree.write("pod/memory.max", "max\n")
    use = tree.use()
    assert use.look(10.0) == CgroupLook(None, None, 0.25)
    tree.write("pod/cpu.stat", "usage_usec 4000000\nnr_periods 30\nnr_throttled 12\n")
    look = use.look(12.0)
    assert look.throttled_ratio == pytest.approx(0.5)
    assert (look.cpu_quota_ratio, look.memory_limit_ratio) == (0.75, 0.25)


def test_version_1_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "4:memory:/box\n1:cpu,cpuacct:/box\n9:pids:/box\n0::/\n")
    tree.write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n")
    tree.write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n")
    tree.write("cpu,cpuacct/box/cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_time 5\n")
    tree.write("cpu,cpuacct/box/cpuacct.usage", "1000000000\n")
    tree.write("memory/box/memory.usage_in_bytes", "50\n")
    tree.write("memory/box/memory.limit_in_bytes", "100\n")
    tree.write("memory/memory.usage_in_bytes", "99\n")
    tree.write("memory/memory.limit_in_bytes", "9223372036854771712\n")
    use = tree.use()
    use.look(10.0)
    tree.write("cpu,cpuacct/box/cpu.stat", "nr_periods 20\nnr_throttled 7\nthrottled_time 5\n")
    tree.write("cpu,cpuacct/box/cpuacct.usage", "1400000000\n")
    look = use.look(11.0)
    assert look.throttled_ratio == pytest.approx(0.5)
    assert look.cpu_quota_ratio == pytest.approx(0.8)
    assert look.memory_limit_ratio == 0.5


def test_a_path_of_another_namespace_is_the_mount_itself(tmp_path: Path) -> None:
    tree = Tree(tmp_path, f"0::/../../docker/{ID}\n")
    tree.write("memory.current", "1\n")
    tree.write("memory.max", "4\n")
    assert tree.use().look(0.0).memory_limit_ratio == 0.25


@pytest.mark.parametrize(
    "cpu_max",
    [
        pytest.param("", id="empty"),
        pytest.param("max 100000", id="no limit"),
        pytest.param("0 100000", id="nothing"),
        pytest.param("x y z", id="nonsense"),
        pytest.param("100000 0", id="no period"),
    ],
)
def test_without_a_limit_nothing_is_said(tmp_path: Path, cpu_max: str) -> None:
    tree = Tree(tmp_path, "0::/box\n")
    tree.write("box/cpu.max", cpu_max)
    tree.write("box/cpu.stat", "usage_usec x\nnr_throttled 3\n\n")
    use = tree.use()
    use.look(0.0)
    assert use.look(1.0) == CgroupLook(None, None, None)


def test_a_process_that_is_gone_has_no_groups(tmp_path: Path) -> None:
    use = CgroupUse(7, proc=tmp_path, cgroups=tmp_path)
    assert use.look(0.0) == CgroupLook(None, None, None)
