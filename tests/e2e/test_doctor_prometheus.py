"""`mileage doctor --prometheus` with a real Prometheus that reads an engine's page."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from tests.support.gateway import free_port
from tests.support.stand_in import Asked, Reply, StandIn

WAIT_S = 60.0
SCRAPED = 8
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="org/m",engine="0"}} 32
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="org/m",engine="0"}} 40
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{model_name="org/m",engine="0"}} 0.3
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{model_name="org/m",engine="0"}} {tokens}
"""


class Page(StandIn):
    """A page whose counter grows by 500 a second."""

    def reply(self, asked: Asked) -> Reply:
        """Always the page."""
        body = PAGE.format(tokens=int(500 * time.monotonic())).encode()
        return Reply(200, body, {"content-type": "text/plain; version=0.0.4"})


def wait_for(base: str, process: subprocess.Popen[bytes]) -> None:
    query = urllib.parse.urlencode(
        {"query": f"count_over_time(vllm:num_requests_running[1m]) > {SCRAPED}"}
    )
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        assert process.poll() is None, "Prometheus has ended"
        try:
            with urllib.request.urlopen(f"{base}/api/v1/query?{query}", timeout=60) as answer:
                if json.load(answer)["data"]["result"]:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    pytest.fail("Prometheus has not read the page")


@pytest.mark.heavy
def test_what_a_prometheus_has_recorded_is_diagnosed(tmp_path: Path) -> None:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no prometheus here: apt install prometheus")
    with Page() as page:
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms}\n"
            "scrape_configs:\n"
            f"- {{job_name: e, static_configs: [{{targets: ['127.0.0.1:{page.port}'], "
            "labels: {namespace: prod}}]}\n"
        )
        port = free_port()
        command = [
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        with subprocess.Popen(command) as process:
            try:
                base = f"http://127.0.0.1:{port}"
                wait_for(base, process)
                document = diagnosed(base, 'namespace="prod"')
                nothing = diagnosed(base, 'namespace="other"')
            finally:
                process.terminate()
    signals = document["facts"]["signals"]
    assert document["facts"]["engine"]["name"] == "vllm"
    assert (signals["requests_running"], signals["requests_waiting"]) == (32, 40)
    assert signals["output_tokens_per_s"] == pytest.approx(500, rel=0.3)
    assert document["findings"][0]["cause"] == "max_num_seqs_cap"
    assert nothing["verdict"] == "not_enough_evidence"


def diagnosed(base: str, selector: str) -> dict[str, Any]:
    words = ["doctor", "--prometheus", base, "--selector", selector, "--for", "5s"]
    told = CliRunner().invoke(app, [*words, "--fact", "max_num_seqs=32", "--json"])
    assert told.exit_code in (1, 3), told.output
    found: dict[str, Any] = json.loads(told.stdout)
    return found
