"""What real processes that listen on loopback use, as a meter beside a run sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from mileage.cli.worker import command
from mileage.engines.embedded.child_process import COMMAND
from mileage.loadgen.launched_server import free_port
from mileage.measure.server_use import ServerUse
from mileage.scrape.server_use import ServerUseMeter, UseOptions
from mileage.scrape.server_use_process import ENGINE_MODULE, WORKER_MODULE
from mileage.storage.config import LedgerConfig
from mileage.wire.fetch import FetchResponse

_SERVER = """
import os, socket, sys, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
child = os.fork()
if child == 0:
    print("ready", flush=True)
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        if sys.argv[2] == "spin":
            sum(range(10_000))
        else:
            time.sleep(0.05)
os.waitpid(child, 0)
"""


@contextlib.contextmanager
def server(port: int, does: str, *more: str) -> Iterator[psutil.Process]:
    """A process that listens, with a child that computes or sleeps."""
    arguments = [sys.executable, "-c", _SERVER, str(port), does, *more]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield psutil.Process(process.pid)
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
                child.wait()
            process.kill()


def measured(
    options: UseOptions, until: Callable[[ServerUseMeter], bool], **more: Any
) -> ServerUse:
    async def run() -> ServerUse:
        meter = ServerUseMeter(options, **more)
        await meter.start()
        async with asyncio.timeout(60):
            while not until(meter):  # noqa: ASYNC110 -- it is other processes that change
                await asyncio.sleep(0.02)
        return await meter.stop()

    return asyncio.run(run())


def looked(times: int) -> Callable[[ServerUseMeter], bool]:
    return lambda meter: len(meter.series().samples) >= times


def on(port: int, **more: Any) -> UseOptions:
    return UseOptions(
        url=f"http://127.0.0.1:{port}", interval_s=0.1, metrics_urls=(), gpu_ids=(), **more
    )


def test_the_work_of_a_child_is_the_servers() -> None:
    port = free_port()
    with server(port, "spin") as process:
        (child,) = process.children()
        began_s, used_s = time.monotonic(), sum(child.cpu_times()[:2])
        use = measured(on(port), looked(8))
        spent = (sum(child.cpu_times()[:2]) - used_s) / (time.monotonic() - began_s)
        cores = len(psutil.Process().cpu_affinity())
    assert use.utilisation_ratio == pytest.approx(spent / cores, abs=0.15)
    assert use.utilisation_ratio is not None
    assert use.utilisation_ratio > 0
    assert use.basis["utilisation_ratio"] == "process_cpu"
    assert use.memory_bytes is not None
    assert use.memory_bytes > 1_000_000
    assert not use.restarted
    assert use.gateway_cpu_cores is None


def test_another_process_on_the_port_is_a_restart() -> None:
    port = free_port()
    with contextlib.ExitStack() as first:
        first.enter_context(server(port, "sleep"))
        second, swaps = contextlib.ExitStack(), list[int]()

        def swapped(meter: ServerUseMeter) -> bool:
            samples = meter.series().samples
            if len(samples) >= 3 and not swaps:
                swaps.append(port)
                first.close()
                second.enter_context(server(port, "sleep"))
            return samples[-1].epoch > 0 and samples[-1].utilisation_ratio is not None

        with second:
            use = measured(on(port), swapped)
    assert use.restarted


def test_a_server_that_ends_is_told_as_such() -> None:
    port = free_port()
    with contextlib.ExitStack() as running:
        running.enter_context(server(port, "sleep"))

        def ended(meter: ServerUseMeter) -> bool:
            if len(meter.series().samples) >= 3:
                running.close()  # once: after that there is nothing in it
            return meter.series().samples[-1].epoch > 0

        use = measured(on(port), ended)
    assert use.restarted


def test_the_engine_behind_a_gateway_is_what_counts() -> None:
    front, back = free_port(), free_port()
    with server(front, "sleep"), server(back, "spin"):
        use = measured(on(front, engine_urls=(f"http://127.0.0.1:{back}",)), looked(5))
    assert use.utilisation_ratio is not None
    assert use.gateway_cpu_cores is not None
    assert use.utilisation_ratio * len(psutil.Process().cpu_affinity()) > use.gateway_cpu_cores


def test_a_mileage_gateway_without_an_engine_of_its_own_is_not_taken_for_one() -> None:
    port = free_port()
    with server(port, "sleep", "-m", WORKER_MODULE):
        use = measured(on(port), looked(2))
    assert use.utilisation_ratio is None
    assert "gateway" in use.missing["utilisation_ratio"]


def test_a_gateways_processes_are_known_by_how_they_are_started() -> None:
    assert WORKER_MODULE in command(os.curdir, LedgerConfig(), "info")  # type: ignore[arg-type]
    assert ENGINE_MODULE in COMMAND


@pytest.mark.parametrize(
    ("url", "why"),
    [
        pytest.param("http://127.0.0.1:9", "no process", id="nobody listens"),
        pytest.param("http://192.0.2.1:80", "another machine", id="elsewhere"),
        pytest.param("http://no.such.host.invalid", "another machine", id="no such host"),
        pytest.param("gopher://x", "http://", id="no URL"),
    ],
)
def test_what_cannot_be_seen_has_a_reason(url: str, why: str) -> None:
    use = measured(UseOptions(url=url, interval_s=0.1, metrics_urls=(), gpu_ids=()), looked(1))
    assert (use.utilisation_ratio, use.memory_bytes, use.energy_j) == (None, None, None)
    assert why in use.missing["utilisation_ratio"]


def test_a_server_in_the_measuring_process_is_not_measured() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        use = measured(on(listening.getsockname()[1]), looked(1))
    assert "process that measures" in use.missing["utilisation_ratio"]


def test_counters_that_go_back_are_a_restart_of_a_server_elsewhere() -> None:
    tokens = iter((500, 700, 20, 40))

    async def fetch(url: str, **options: Any) -> FetchResponse:
        count = next(tokens, 60)
        page = (
            f'vllm:generation_tokens_total{{engine="0"}} {count}\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} 0.5\n'
        )
        return FetchResponse(200, (), page.encode())

    options = UseOptions(
        url="http://192.0.2.1:80",
        interval_s=0.02,
        metrics_interval_s=0.02,
        metrics_urls=("http://192.0.2.1:80/metrics",),
    )
    use = measured(options, lambda meter: meter.series().samples[-1].epoch > 0, fetch=fetch)
    assert use.restarted
    assert use.kv_cache_usage_ratio == 0.5
    assert use.utilisation_ratio is None


def test_a_bug_in_a_look_ends_the_looks_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("mileage.scrape.server_use_sampler.UseSampler.look", broken)
    use = measured(on(9), lambda meter: True)
    assert "ZeroDivisionError" in use.missing["memory_bytes"]
    assert "went wrong" in caplog.text
