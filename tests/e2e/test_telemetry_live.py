"""Telemetry of a running gateway: status, metrics, minutes in the ledger, drawn in the end."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from mileage.measure.gpu_rollup import ROLLED_UP
from mileage.storage.gpu_minutes import GpuMinute, read_gpu_minutes
from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.local_http import LOCAL

START_S = 300.0
OFF = "[telemetry]\nenabled = false"
PAGE = """\
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="node-1"} 0.5
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-b",Hostname="node-1"} 0.9
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="node-1"} 0.25
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="node-1"} 300
"""


def sources(gateway: Gateway) -> dict[str, dict[str, Any]]:
    telemetry = gateway.admin("/api/v1/status")["telemetry"]
    return {row["source"]: row for row in telemetry["sources"]} if telemetry else {}


def wait_looks(gateway: Gateway, name: str, count: int) -> None:
    def looked() -> bool:
        source = sources(gateway).get(name)
        return source is not None and source["looks_total"] >= count

    wait_until(looked, f"{count} looks at {name}")


def minutes(gateway: Gateway) -> list[GpuMinute]:
    return list(read_gpu_minutes(gateway.ledger, 0, 10**11, ROLLED_UP))


def test_the_embedded_engine_is_seen_and_its_minutes_are_drawn(tmp_path: Path) -> None:
    arguments = ("--threads", "1", "--slots", "1", "--context-tokens", "512")
    with Gateway(tmp_path, *arguments, start_s=START_S) as gateway:
        wait_looks(gateway, "host", 3)
        source = sources(gateway)["host"]
        assert source["error"] is None
        assert source["period_s"] >= 0.1
        page = httpx.get(f"{gateway.listening.admin_url}/metrics", **LOCAL).text
        assert 'mileage_telemetry_up{source="host"} 1' in page
        assert 'mileage_telemetry_period_seconds{source="host"}' in page
        ledger = gateway.ledger
        assert gateway.stop() == 0
    rows = minutes(gateway)
    fields = {row.field: row for row in rows}
    assert {row.gpu for row in rows} == {"cpu"}
    assert 0.0 <= fields["sm_active_ratio"].mean <= 1.0
    assert fields["memory_used_bytes"].max > 50e6
    assert "dram_active_ratio" not in fields  # not known without resctrl, and so not 0
    out = tmp_path / "heat.html"
    told = run_mileage(
        "trace", "heatmap", "--since", "1h", "--ledger", ledger, "--out", str(out), "--json",
        state=gateway.state,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert [name.rpartition(":")[2] for name in document["rows"]] == ["cpu"]
    assert document["known_ratio"]["idle"] > 0.0
    assert document["known_ratio"]["bandwidth"] == 0.0
    assert "cpu" in out.read_text()


class Exporter:
    """Gives a page, or accepts a request and does not answer it while `hangs` is set."""

    def __init__(self) -> None:
        self.hangs = False
        self.asked = threading.Event()
        self.released = threading.Event()
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.asked.set()
                if exporter.hangs:
                    exporter.released.wait(60.0)
                body = PAGE.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                with contextlib.suppress(OSError):  # it was not waited for
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter()
    yield exporter
    exporter.close()


def config(engine: ScriptedEngine, exporter: Exporter, extra: str = "") -> str:
    return f"""
{extra}
[[engines]]
kind = "vllm"
name = "gpu"
url = "{engine.url}"
dcgm_url = "{exporter.url}"
gpu_ids = ["0"]
"""


def test_gpus_of_an_exporter_are_in_the_ledger_and_no_others(
    tmp_path: Path, exporter: Exporter
) -> None:
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, config=config(engine, exporter)) as gateway,
    ):
        wait_looks(gateway, f"dcgm {exporter.url}", 1)
        assert gateway.stop() == 0
    rows = {(row.host, row.gpu, row.field): (row.mean, row.max) for row in minutes(gateway)}
    assert rows == {
        ("node-1", "0", "sm_active_ratio"): (0.5, 0.5),
        ("node-1", "0", "dram_active_ratio"): (0.25, 0.25),
        ("node-1", "0", "power_w"): (300.0, 300.0),
    }


def test_an_exporter_that_hangs_does_not_hold_up_the_stop(
    tmp_path: Path, exporter: Exporter
) -> None:
    exporter.hangs = True
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, config=config(engine, exporter)) as gateway,
    ):
        assert exporter.asked.wait(60.0)
        began_s = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - began_s < 30.0


def test_it_can_be_turned_off(tmp_path: Path, exporter: Exporter) -> None:
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, config=config(engine, exporter, OFF)) as gateway,
    ):
        status = gateway.admin("/api/v1/status")["telemetry"]
        assert status == {
            "enabled": False,
            "sources": [],
            "gpus": [],
            "dropped_total": 0,
            "error": None,
        }
        assert gateway.stop() == 0
    assert minutes(gateway) == []
