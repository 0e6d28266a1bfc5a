"""The process behind a port of this machine: what is read of it, and what is not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mileage.cli.doctor_watch import WatchPlan, watch
from mileage.core.errors import EngineError
from mileage.scrape import doctor_process
from mileage.scrape.doctor_process import engine_process
from tests.support.engine_pages import checked
from tests.support.gateway import free_port

PROGRAM = """
import http.server, sys
print("vLLM API server version 0.10.2", flush=True)
handler = http.server.SimpleHTTPRequestHandler
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), handler).serve_forever()
"""
WAIT_S = 60.0


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server whose command line is an engine's, and whose output goes into a file."""
    port = free_port()
    program = tmp_path / "vllm"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), "serve", "m", "--max-num-seqs", "8", "--port", str(port)]
    environment = {"OMP_NUM_THREADS": "3", "API_KEY": "secret"}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            words, stdout=log, stderr=subprocess.DEVNULL, env=environment, cwd=tmp_path
        ) as process,
    ):
        try:
            deadline_s = time.monotonic() + WAIT_S
            while time.monotonic() < deadline_s:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def test_command_line_environment_and_log(url: str) -> None:
    process = engine_process(url)
    assert process.words[2:6] == ("serve", "m", "--max-num-seqs", "8")
    assert process.environment == {"OMP_NUM_THREADS": "3"}
    assert process.log == ("vLLM API server version 0.10.2",)


def test_of_a_long_log_both_ends(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        log.write(b"".join(b"line %d\n" % number for number in range(1_000)))
    monkeypatch.setattr(doctor_process, "HEAD_BYTES", 64)
    monkeypatch.setattr(doctor_process, "TAIL_BYTES", 64)
    lines = engine_process(url).log
    assert lines[0] == "vLLM API server version 0.10.2"
    assert lines[-1] == "line 999"
    assert all(line.startswith(("vLLM", "line ")) for line in lines)
    assert len(lines) < 20


def test_an_engine_elsewhere_and_a_port_without_a_server() -> None:
    with pytest.raises(EngineError, match="on another machine"):
        engine_process("http://192.0.2.1:8000")
    with pytest.raises(EngineError, match="listens on port"):
        engine_process(f"http://127.0.0.1:{free_port()}")


def test_the_doctor_knows_how_the_engine_that_it_watches_was_started(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "metrics").write_text(
        'vllm:num_requests_running{engine="0"} 8\nvllm:kv_cache_usage_perc{engine="0"} 0.1\n'
    )
    watched = watch(WatchPlan(urls=(url,), window_s=2.0))
    checked(watched.document)
    assert watched.document["engine"] == {"name": "vllm", "variant": "v1", "version": "0.10.2"}
    assert watched.document["settings"]["max_num_seqs"] == 8
    assert watched.document["settings"]["env.OMP_NUM_THREADS"] == 3
    assert watched.document["signals"]["requests_running"] == 8
