"""The process that looks at GPUs beside a gateway: what it tells, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest

from mileage.cli.telemetry_child import Order, Told, command
from mileage.cli.telemetry_process import TelemetryProcess
from mileage.cli.telemetry_watches import Place, Spec
from mileage.storage.gpu_minutes import GpuMinute

HOST = Spec(Place("host"), 0.1, 0.5)
ABSENT = Spec(Place("dcgm", "http://127.0.0.1:9/metrics", ("0",)), 0.1, 0.5)
WAIT_S = 60.0


class Site:
    def __init__(self) -> None:
        self.rows: list[GpuMinute] = []
        self.pids: Sequence[int] = (os.getpid(),)
        self.process = TelemetryProcess(
            self.rows.extend, host="here", pids=lambda: self.pids, again_s=0.01
        )

    def looks(self, source: str = "host") -> int:
        state = self.process.status().get(source)
        return 0 if state is None or state.error else state.looks

    def running(self) -> psutil.Process:
        wait_for(lambda: self.process.pid is not None)
        return psutil.Process(self.process.pid)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.process.stop()
    assert site.process.pid is None


def wait_for(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_it_tells_how_it_goes_and_the_open_minute_at_its_end(site: Site) -> None:
    site.process.configure([HOST])
    wait_for(lambda: site.looks() >= 3)
    process = site.running()
    if sys.platform == "linux":
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    assert os.getsid(process.pid) != os.getsid(0)  # so that Ctrl-C is not for it
    site.process.stop()
    assert not process.is_running()
    assert {row.host for row in site.rows} == {"here"}
    assert {"sm_active_ratio", "memory_used_bytes"} <= {row.field for row in site.rows}


def test_it_ends_without_a_word_at_sigterm() -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command("warning", "here"), stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stdout.readline()  # it has begun, and waits for orders
    process.terminate()
    _, said = process.communicate(timeout=WAIT_S * 3)
    assert (process.returncode, said) == (0, b"")


def test_nothing_runs_where_there_is_nothing_to_look_at(site: Site) -> None:
    site.process.configure([])
    assert (site.process.pid, site.process.status()) == (None, {})
    site.process.configure([HOST])
    process = site.running()
    wait_for(lambda: site.looks() > 0)
    site.process.configure([])
    assert site.process.status() == {}
    wait_for(lambda: not process.is_running())
    assert {row.gpu for row in site.rows} == {"cpu"}
    site.process.configure([HOST])
    wait_for(lambda: site.looks() > 0)


def test_places_come_and_go_while_the_others_go_on(site: Site) -> None:
    site.process.configure([HOST])
    wait_for(lambda: site.looks() >= 3)
    process = site.running()
    site.process.configure([HOST, ABSENT])
    name = f"dcgm {ABSENT.place.url}"
    wait_for(lambda: name in site.process.status())
    wait_for(lambda: bool(site.process.status()[name].error))
    before = site.looks()
    wait_for(lambda: site.looks() > before)
    site.process.configure([HOST])
    wait_for(lambda: name not in site.process.status())
    assert site.running() == process


def test_the_engine_of_our_own_may_be_another_process_later(site: Site) -> None:
    site.pids = ()
    site.process.configure([HOST])
    wait_for(lambda: bool(site.process.status()))
    assert "no process on this machine" in str(site.process.status()["host"].error)
    site.pids = (os.getpid(),)
    wait_for(lambda: site.looks() > 0)


def test_one_that_was_killed_is_started_again(site: Site) -> None:
    site.process.configure([HOST])
    wait_for(lambda: site.looks() > 0)
    killed = site.running()
    killed.kill()
    wait_for(lambda: site.process.pid not in (None, killed.pid) and site.looks() > 0)


def test_one_that_hangs_delays_the_stop_and_no_more(site: Site) -> None:
    site.process.configure([HOST])
    wait_for(lambda: site.looks() > 0)
    process = site.running()
    process.suspend()
    began_s = time.monotonic()
    site.process.stop()
    assert time.monotonic() - began_s < WAIT_S
    assert not process.is_running()


def test_it_ends_when_the_gateway_is_gone() -> None:
    child = subprocess.Popen(
        command("warning", "here"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(msgspec.json.encode(Order((HOST,), (os.getpid(),))) + b"\n")
        child.stdin.flush()
        decoder = msgspec.json.Decoder(Told)
        for line in child.stdout:
            told = decoder.decode(line)
            if told.status and told.status["host"].looks:
                break
        child.send_signal(signal.SIGINT)  # of a terminal: not for it
        child.stdin.close()
        told = decoder.decode(child.stdout.readlines()[-1])
        assert told.minutes
        assert child.wait(WAIT_S) == 0
    finally:
        child.kill()
        child.stdout.close()
        child.wait()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="no groups by session here")
def test_its_session_yields_to_others(site: Site) -> None:
    site.process.configure([HOST])
    wait_for(lambda: site.looks() > 0)
    group = Path(f"/proc/{site.running().pid}/autogroup")
    assert group.read_text().split()[-1] == "19"
