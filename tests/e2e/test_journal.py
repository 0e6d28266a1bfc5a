"""A real gateway's journal: whether it was killed or drained, its replay is the same."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.load import Load
from tests.support.local_http import LOCAL

BODY: dict[str, Any] = {
    "model": "toy",
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
}


def replay(gateway: Gateway, *arguments: str, code: int = 0) -> Any:
    ran = run_mileage("replay", "--json", *arguments, state=gateway.state)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout) if ran.stdout else None


@pytest.mark.parametrize("mode", ["act", "observe", "off"])
def test_a_killed_gateways_journal_is_replayed_identically(tmp_path: Path, mode: str) -> None:
    with ScriptedEngine() as one, ScriptedEngine() as other:
        one.behaviour = other.behaviour = Behaviour(tokens=5, token_s=0.002)
        for engine in (one, other):
            engine.following.extend((engine.behaviour, Behaviour(status=503)))
        config = f"""
[governor]
mode = "{mode}"
limit_max = 2
[journal]
segment_bytes_max = 65536
"""
        with Gateway(tmp_path, config=config, engines=(one.url, other.url)) as gateway:
            with Load(gateway.url, BODY, threads=6) as load:
                load.wait_for_more(400)
                beside = replay(gateway)
                assert beside["identical"]
                (worker,) = gateway.workers()
                worker.send_signal(signal.SIGKILL)
                load.wait_for_more(200)
                gateway.kill_all()
            report = replay(gateway)
            each = replay(gateway, "--each", "--show", "5")
            estimate = replay(gateway, "--what-if", str(tmp_path / "mileage.toml"))
    (worker_replay,) = report["workers"]
    assert report["identical"]
    assert not worker_replay["failed_open"]
    # Up to a second of records is lost with a process that is killed.
    assert report["records"] > 600
    assert worker_replay["events"]["arrived"] > 200
    assert worker_replay["events"]["failed"] >= 1
    assert worker_replay["ending"] == "early"
    assert each["records"] == report["records"]
    assert each["workers"][0]["restored"] == each["workers"][0]["segments"] >= 2
    # One chain per process: the one that was killed, and the one that took its place.
    assert worker_replay["restored"] == 2
    assert len(each["decisions"]) == 5
    (result,) = [worker["result"] for worker in estimate["workers"]]
    assert result["recorded"]["arrived"] == worker_replay["events"]["arrived"]
    assert result["estimated"]["arrived"] == result["recorded"]["arrived"]


def test_a_drained_gateway_has_a_whole_journal_that_begins_anew_after_a_restart(
    tmp_path: Path,
) -> None:
    with ScriptedEngine() as engine:
        gateway = Gateway(tmp_path, engines=(engine.url,))
        for _ in range(2):
            with gateway, Load(gateway.url, BODY, threads=2) as load:
                load.wait_for_more(20)
    report = replay(gateway)
    (worker,) = report["workers"]
    assert (worker["segments"], worker["restored"], worker["ending"]) == (2, 2, "stopped")
    assert worker["events"]["finished"] == worker["events"]["arrived"] >= 40
    assert "Traceback" not in gateway.log


def test_nothing_is_written_where_the_journal_is_off(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        config = "[journal]\nenabled = false\n"
        with (
            Gateway(tmp_path, config=config, engines=(engine.url,)) as gateway,
            Load(gateway.url, BODY, threads=1) as load,
        ):
            load.wait_for_more(3)
        assert not (gateway.state / "mileage" / "journal").exists()
        replay(gateway, code=3)


def test_a_journal_that_cannot_be_written_stops_no_request_and_is_seen(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    with ScriptedEngine() as engine:
        config = f'[journal]\ndirectory = "{tmp_path / "in-the-way"}"\n'
        with (
            Gateway(tmp_path, config=config, engines=(engine.url,)) as gateway,
            Load(gateway.url, BODY, threads=1) as load,
        ):
            load.wait_for_more(10)
            wait_until(
                lambda: "mileage_journal_stopped 1.0" in metrics(gateway), "the metric tells"
            )
            assert gateway.log.count("the journal is not written") == 1


def metrics(gateway: Gateway) -> str:
    return httpx.get(f"{gateway.listening.admin_url}/metrics", **LOCAL).text
