"""A stall of each kind, put into a real gateway and engine, comes first in the tail's report."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mileage.loadgen.planned_call import PlannedCall
from mileage.measure.tail_report import TailReport
from tests.support.gateway import Gateway
from tests.support.tail_site import TailSite, bursts, collecting_environment, planned

pytestmark = pytest.mark.heavy

START_S = 300.0
CONFIG = '[governor]\nmode = "off"\n'
HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
if sys.argv[2:] == ["rt"]:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
while True: pass
"""
LONG_WORDS = 250


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, hooks: Path) -> Iterator[TailSite]:
    arguments = ("--threads", "1", "--slots", "8", "--context-tokens", "2048")
    environment = collecting_environment(hooks, objects=4_000_000, times=6)
    directory = tmp_path_factory.mktemp("tail")
    with Gateway(
        directory, *arguments, config=CONFIG, environment=environment, start_s=START_S
    ) as gateway:
        made = TailSite(gateway)
        made.report(bursts(8, 3, every_s=0.3, output_tokens=4))  # nothing is cold from now on
        yield made


def first_of(report: TailReport) -> tuple[str, str | None]:
    assert report.first is not None, report.verdict
    return report.first.stage, report.first.role


def looked_for(
    site: TailSite, calls: list[PlannedCall], fault: Callable[[], None], first: tuple[str, str]
) -> TailReport:
    """The report of a run with the fault. On a machine that others use, too, some request may be
    slow for another reason: then it is asked once more."""
    report = site.report(calls, fault)
    if report.first is None or first_of(report) != first:
        report = site.report(calls, fault)
    assert first_of(report) == first, told(report)
    return report


def told(report: TailReport) -> str:
    return "\n".join([report.verdict, *report.evidence, *(f"{s}" for s in report.stages)])


def test_a_stopped_engine_comes_first(site: TailSite) -> None:
    def stop() -> None:
        os.kill(site.engine_pid, signal.SIGSTOP)
        try:
            time.sleep(1.5)
        finally:
            os.kill(site.engine_pid, signal.SIGCONT)

    calls = bursts(12, 2, every_s=0.6, output_tokens=4)
    report = looked_for(site, calls, stop, ("stopped", "engine"))
    assert "was stopped for" in told(report)


def test_a_long_prompt_in_the_batch_comes_first_and_its_size_is_named(site: TailSite) -> None:
    # Soon after the third burst has begun, so that its streams are in the batch.
    long = planned(2 * 1.5 + 0.25, "word " * LONG_WORDS, 2)
    report = site.report(bursts(7, 3, every_s=1.5, output_tokens=12, also=[long]))
    assert first_of(report) == ("stall_prefill", None), told(report)
    sizes = [
        near.prompt_tokens or 0
        for worst in report.waterfalls
        for part in worst.slices
        if part.stage == "stall_prefill"
        for near in part.prefills
    ]
    assert max(sizes) > LONG_WORDS
    assert f"the prompt of {max(sizes)} tokens" in told(report)


def test_a_collection_in_the_gateway_comes_first(site: TailSite, hooks: Path) -> None:
    (hooks / "grow").touch()
    while not (hooks / "grown").exists():
        time.sleep(0.05)
    calls = bursts(24, 1, every_s=0.25, output_tokens=2)
    report = looked_for(site, calls, (hooks / "collect").touch, ("gc", "gateway"))
    assert "generation 2" in told(report)


def test_a_hog_on_the_engines_core_comes_first(site: TailSite) -> None:
    calls = bursts(12, 2, every_s=0.6, output_tokens=4)
    fault = partial(hog, site.engine_pid, processes=8)
    report = looked_for(site, calls, fault, ("run_queue", "engine"))
    assert "waited for a CPU for" in told(report)


def test_a_hog_on_the_gateways_core_comes_first(site: TailSite) -> None:
    # A gateway sleeps most of the time, so that the kernel lets it go before any hog of its own
    # class; one of the real-time class leaves the others a twentieth of each second.
    if not may_be_real_time():
        pytest.skip("real-time processes are not allowed here")
    calls = bursts(12, 2, every_s=0.6, output_tokens=4)
    fault = partial(hog, site.worker_pid, real_time=True)
    report = looked_for(site, calls, fault, ("run_queue", "gateway"))
    assert "waited for a CPU for" in told(report)


def may_be_real_time() -> bool:
    command = [
        sys.executable,
        "-c",
        HOG.replace("while True: pass", ""),
        str(min(os.sched_getaffinity(0))),
        "rt",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def hog(pid: int, *, processes: int = 1, real_time: bool = False) -> None:
    """Keep the core that a process is put on busy for a while."""
    core, before = min(os.sched_getaffinity(0)), os.sched_getaffinity(pid)
    with contextlib.ExitStack() as stack:
        pin(pid, {core})
        stack.callback(pin, pid, before)
        for _ in range(processes):
            command = [sys.executable, "-c", HOG, str(core), *(["rt"] if real_time else [])]
            # In sessions of their own the kernel shares the core out between them, one by one.
            process = subprocess.Popen(command, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(1.5)


def pin(pid: int, cores: set[int]) -> None:
    for name in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(name), cores)
