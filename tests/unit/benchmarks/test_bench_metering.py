"""The metering benchmark: CPU clocks of processes, and what becomes of its figures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.metering import BARS, figures
from benchmarks.support.cpu_clock import process_cpu_s, thread_cpu_s, tree_cpu_s
from benchmarks.support.embedded_gateway import Used, short_answers
from benchmarks.support.verdict import FAILED, PASSED, verdict

ENGINE_S = 400.0


def burn(cpu_s: float) -> None:
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """Burns 0.05 s, says so, and waits."""
    program = "import time\nwhile time.process_time() < 0.05: pass\nprint(flush=True)\ninput()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_clock_counts_threads_that_have_ended() -> None:
    before_s = process_cpu_s(os.getpid())
    thread = threading.Thread(target=burn, args=(0.02,))
    thread.start()
    thread.join()
    assert 0.02 <= process_cpu_s(os.getpid()) - before_s < 2.0
    assert process_cpu_s(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)


def test_a_thread_s_clock_is_its_own() -> None:
    found = []

    def run() -> None:
        burn(0.02)
        found.append(thread_cpu_s(os.getpid(), threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert 0.019 <= found[0] < 0.1


def test_a_tree_has_its_children_but_for_those_that_are_apart(
    child: subprocess.Popen[str],
) -> None:
    child_s = process_cpu_s(child.pid)
    assert child_s >= 0.05
    own_s = tree_cpu_s(os.getpid(), apart=(child.pid,))
    assert tree_cpu_s(os.getpid()) - own_s >= child_s
    assert tree_cpu_s(child.pid, apart=(child.pid,)) == 0.0


def test_a_process_that_is_gone_has_no_clock() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(OSError, match="Invalid argument"):
        process_cpu_s(process.pid)
    assert tree_cpu_s(process.pid) == 0.0


def used(gateway_s: float, *, answered: int = 50, wall_s: float = 10.0) -> Used:
    return Used(wall_s, gateway_s, ENGINE_S * answered / 1000, answered)


@pytest.mark.parametrize(
    ("core_share", "rounds_s", "exit_code"),
    [
        pytest.param(0.01, 0.1, PASSED, id="2 s in 200 s, and 2 s by the rounds: half a percent"),
        pytest.param(0.03, 0.1, FAILED, id="6 s by the second"),
        pytest.param(0.01, 0.3, FAILED, id="6 s by the rounds"),
    ],
)
def test_metering_is_held_against_the_engine(
    core_share: float, rounds_s: float, exit_code: int
) -> None:
    found = figures(
        [used(0.4 + rounds_s)] * 3,
        [used(0.4)] * 3,
        idle=(Used(20.0, 0.5 + 20.0 * core_share, 0.0), Used(20.0, 0.5, 0.0)),
        cpu_s_per_request=40e-6,
    )
    # 200 s of wall time for 1,000 answers, and 0.04 s for the requests themselves.
    assert found["metering_cpu_s_per_1000"] == pytest.approx(0.04 + 200 * core_share)
    assert found["metering_ratio"] == pytest.approx((0.04 + 200 * core_share) / ENGINE_S, abs=1e-5)
    assert found["metering_ratio_of_rounds"] == pytest.approx(rounds_s * 20 / ENGINE_S, abs=1e-5)
    assert found["engine_answers_per_s"] == 5.0
    assert verdict(found, BARS).exit_code == exit_code


def test_both_gateways_get_the_same_requests_and_no_two_are_alike() -> None:
    first, again, other = short_answers(1, 50), short_answers(1, 50), short_answers(2, 50)
    assert [call.request for call in first] == [call.request for call in again]
    assert len({call.request for call in (*first, *other)}) == 100
