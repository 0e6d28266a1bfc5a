"""The doctor beside a real gateway and the embedded engine: five faults, each named first.

Each is injected as it comes in practice, watched for less than a minute, and named by the command
that a user types. A healthy busy engine is clear, and one that nobody asks is only idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import doctor_load
from tests.support.gateway import Gateway, run_mileage

pytestmark = [pytest.mark.heavy, pytest.mark.quiet]

START_S = 180.0
WATCHED = "25s"
"""Of the 60 s that a finding may take; the rest is for slow machines."""
SETTLE_S = 3.0
HOGS = 4
HOG = "while True: pass"


@contextmanager
def client(gateway: Gateway, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A client process that has begun; ended in the end."""
    with doctor_load.loading(gateway.url, *arguments) as process:
        time.sleep(SETTLE_S)
        yield process


@contextmanager
def hog(core: int) -> Iterator[None]:
    """A program that computes on that core, in a session of its own, as another service would."""
    command = [sys.executable, "-c", HOG]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            psutil.Process(process.pid).cpu_affinity([core])
            yield
        finally:
            process.kill()
            process.wait()


def engine(directory: Path, slots: int) -> Gateway:
    arguments = ("--threads", "1", "--slots", str(slots), "--context-tokens", "2048")
    return Gateway(directory, *arguments, start_s=START_S)


def pin(gateway: Gateway, cores: list[int]) -> None:
    """Let all threads of the engine run on these cores alone."""
    for process in gateway.embedded():
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)


def diagnosed(gateway: Gateway, *options: str) -> dict[str, Any]:
    """What the command says of the gateway, whose admin plane it finds by itself."""
    done = run_mileage(
        *("doctor", gateway.root, "--for", WATCHED, "--json", *options),
        state=gateway.state,
        timeout_s=120.0,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def causes(document: dict[str, Any]) -> list[str]:
    return [found["cause"] for found in document["findings"]]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """An engine with slots to spare."""
    with engine(tmp_path_factory.mktemp("wide"), 12) as gateway:
        yield gateway


def test_an_idle_engine_is_only_idle(wide: Gateway) -> None:
    document = diagnosed(wide)
    assert causes(document) == ["idle_capacity"], document
    assert document["findings"][0]["severity"] == "info"


def test_a_healthy_busy_engine_is_clear(wide: Gateway) -> None:
    with client(wide, "plain", "--clients", 4):
        document = diagnosed(wide)
    assert document["verdict"] == "clear", document


def test_a_client_whose_pool_is_smaller_than_what_it_wants(wide: Gateway) -> None:
    with client(wide, "pool", "--clients", 5, "--wanted", 40):
        document = diagnosed(wide, "--fact", "concurrency=40")
    assert causes(document)[:1] == ["client_connection_limit"], document


def test_a_time_at_the_head_of_the_prompt(wide: Gateway) -> None:
    with client(wide, "dated", "--clients", 2):
        document = diagnosed(wide)
    assert causes(document)[:1] == ["volatile_prefix"], document


def test_a_load_generator_that_is_out_of_cpu(wide: Gateway) -> None:
    with client(wide, "busy", "--clients", 8):
        document = diagnosed(wide, "--fact", "concurrency=8")
    assert causes(document)[:1] == ["load_generator_bound"], document


def test_an_engine_with_too_few_slots(tmp_path: Path) -> None:
    with engine(tmp_path, 2) as gateway, client(gateway, "plain", "--clients", 10):
        document = diagnosed(gateway)
    assert causes(document)[:1] == ["max_num_seqs_cap"], document


def test_a_program_that_takes_the_engines_cpu(wide: Gateway) -> None:
    cores = sorted(os.sched_getaffinity(0))
    pin(wide, cores[:1])
    with ExitStack() as stack:
        stack.callback(pin, wide, cores)
        stack.enter_context(client(wide, "plain", "--clients", 4))
        for _ in range(HOGS):
            stack.enter_context(hog(cores[0]))
        document = diagnosed(wide)
    assert causes(document)[:1] == ["cpu_thread_oversubscription"], document
