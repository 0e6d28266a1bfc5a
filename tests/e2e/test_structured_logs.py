"""Structured logs of a real gateway: its own lines, and one for each request."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, wait_until


def log_lines(gateway: Gateway) -> list[str]:
    return [text for text in gateway.log.splitlines() if text.startswith("{")]


def test_requests_are_followed_and_the_gateways_log_is_json(tmp_path: Path) -> None:
    with (
        ScriptedEngine() as engine,
        Gateway(
            tmp_path, "--log-format", "json", "--log-level", "info", engines=[engine.url]
        ) as gateway,
    ):
        mileage = str(Path(sys.executable).with_name("mileage"))
        out = tmp_path / "requests.jsonl"
        (database,) = gateway.state.rglob("ledger.sqlite")
        command = [mileage, "requests", "--ledger", str(database.parent), "--follow"]
        command += ["--since", "1m"]
        with out.open("wb") as file, subprocess.Popen(command, stdout=file) as process:
            gateway.client().chat.completions.create(
                model="toy", messages=[{"role": "user", "content": "a secret"}]
            )
            wait_until(lambda: out.read_bytes().endswith(b"\n"), "a line")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        (line,) = out.read_text().splitlines()
        request = msgspec.json.decode(line)
        assert (request["outcome"], request["model"]) == ("ok", "toy")
        assert "secret" not in line
        gateway.workers()[0].kill()
        wait_until(lambda: log_lines(gateway), "a line about the worker's end")
        for text in log_lines(gateway):
            assert {"at_utc", "level", "message"} <= msgspec.json.decode(text).keys()
