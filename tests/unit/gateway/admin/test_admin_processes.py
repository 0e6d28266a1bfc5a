"""Process figures: of processes that run, and CPU time that never falls."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mileage.gateway.admin.processes import ProcessSampler


def test_a_process_is_sampled_with_its_use_of_the_cpu_since_the_last_time() -> None:
    sampler = ProcessSampler()
    (first,) = sampler.sample({os.getpid(): "supervisor"}, 10.0)
    assert first.cpu_ratio is None
    assert first.rss_bytes > 1_000_000
    sum(range(2_000_000))
    (second,) = sampler.sample({os.getpid(): "supervisor"}, 11.0)
    assert second.cpu_ratio == pytest.approx(second.cpu_s - first.cpu_s)
    (again,) = sampler.sample({os.getpid(): "supervisor"}, 11.0)
    assert again.cpu_ratio is None


def test_what_a_process_used_is_kept_when_it_ends() -> None:
    sampler = ProcessSampler()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert len(sampler.sample({child.pid: "worker"}, 1.0)) == 1
        used_s = sampler.cpu_s_by_role()["worker"]
        child.communicate()
    assert sampler.sample({child.pid: "worker"}, 2.0) == []
    assert sampler.cpu_s_by_role() == {"worker": used_s}
    sampler.sample({}, 3.0)
    assert sampler.cpu_s_by_role() == {"worker": used_s}


def test_a_process_that_is_no_longer_asked_for_keeps_its_time() -> None:
    sampler = ProcessSampler()
    sampler.sample({os.getpid(): "worker"}, 1.0)
    used_s = sampler.cpu_s_by_role()["worker"]
    sampler.sample({}, 2.0)
    assert sampler.cpu_s_by_role() == {"worker": used_s}


def test_a_process_that_never_was_is_left_out() -> None:
    sampler = ProcessSampler()
    assert sampler.sample({2**31 - 5: "engine"}, 1.0) == []
    assert sampler.cpu_s_by_role() == {}
