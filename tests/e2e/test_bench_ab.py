"""`mileage bench ab` on a real gateway: two of its settings, switched by its admin plane."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mileage.loadgen.arms_switch import LEASE_S
from tests.support.bench_cli import start_bench
from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.gateway import wait_until
from tests.support.reload_site import ReloadSite

pytestmark = pytest.mark.heavy

LOAD = ("--rate", "20", "--prompt-tokens", "20", "--output-tokens", "4", "--slot", "1s")
SETTING = "governor.mode=act"
TIMES = ("--wash-out", "200ms", "--max-duration", "10s")


def compared(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mileage.cli.main", "bench", "ab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_settings_of_a_gateway_are_switched_for_each_slot_and_put_back(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=4, first_token_s=0.05, token_s=0.005)
        site = ReloadSite(tmp_path, engine)
        with site.gateway as gateway:
            listening = gateway.listening
            done = compared(
                gateway.url.removesuffix("/v1"),
                *LOAD,
                *TIMES,
                *("--set-a", "governor.mode=off", "--set-b", "governor.mode=act"),
                *("--admin-url", str(listening.admin_url)),
                *("--admin-token-file", str(listening.admin_token_file), "--json"),
            )
            status = site.status()
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["error"] is None
    assert document["restore_error"] is None
    slots = document["slots"]
    # A pair that could not be judged is left out of the count, not out of the record.
    assert len(slots) >= 2 * document["pairs"] >= 2
    assert all(slot["applied"].startswith("configuration ") for slot in slots)
    for before, slot in zip(slots, slots[1:], strict=False):  # noqa: RUF007 -- a pair of dicts
        assert (before["applied"] == slot["applied"]) == (before["arm"] == slot["arm"])
    assert document["arms"]["a"]["settings"] == {"governor.mode": "off"}
    assert {"a", "b", "ratio", "ci95", "verdict"} <= document["metrics"]["e2e_p99_s"].keys()
    assert (status["trial"], status["trial_until_utc_s"]) == ([], None)


def settings_site(directory: Path, engine: ScriptedEngine) -> tuple[ReloadSite, list[str]]:
    """A gateway of one engine, and the options that compare two of its settings."""
    engine.behaviour = Behaviour(tokens=4, first_token_s=0.02, token_s=0.005)
    site = ReloadSite(directory, engine)
    return site, [*LOAD, "--wash-out", "200ms", "--max-duration", "60s", "--set-b", SETTING]


def begun(site: ReloadSite, options: list[str]) -> subprocess.Popen[str]:
    """The run, once arm b's settings are in force."""
    listening = site.gateway.listening
    process = start_bench(
        *("ab", site.gateway.root, *options, "--json"),
        *("--admin-url", str(listening.admin_url)),
        *("--admin-token-file", str(listening.admin_token_file)),
    )
    wait_until(lambda: site.status()["trial"], "settings are on trial")
    wait_until(lambda: len(site.engine.received) > 20, "load comes")
    return process


def test_ctrl_c_ends_a_run_and_puts_settings_back(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        site, options = settings_site(tmp_path, engine)
        with site.gateway, begun(site, options) as process:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            status = site.status()
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["interrupted"]
    assert (document["verdict"], document["restore_error"]) == ("invalid", None)
    assert (status["trial"], status["trial_until_utc_s"]) == ([], None)
    assert "Traceback" not in err


def test_settings_of_a_run_that_is_killed_are_left_for_a_minute_at_most(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        site, options = settings_site(tmp_path, engine)
        with site.gateway, begun(site, options) as process:
            wait_until(lambda: site.status()["trial"], "arm b's turn")
            process.kill()
            process.communicate(timeout=60)
            status = site.status()
            site.post("/api/v1/config/reload")
    assert process.returncode == -signal.SIGKILL
    if status["trial"]:  # killed in arm b's slot, not between the slots
        assert status["trial"] == ["governor.mode"]
        assert status["trial_until_utc_s"] - time.time() <= LEASE_S


def test_a_closed_loop_with_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = f"echo $MILEAGE_ARM >> {log}"
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=4, first_token_s=0.02, token_s=0.005)
        done = compared(
            engine.url,
            *("--concurrency", "2", "--slot-requests", "20", "--max-duration", "5s"),
            *("--prompt-tokens", "20", "--output-tokens", "4", "--json"),
            *("--command-a", note, "--command-b", note, "--command-end", note),
        )
    document = json.loads(done.stdout)
    assert document["error"] is None
    assert document["pairs"] >= 4 or "generator was the limit" in done.stderr
    # Both are tried first, so that what fails is told before anything is sent.
    slots = [slot["arm"] for slot in document["slots"]]
    assert log.read_text().split() == ["b", "a", *slots, "end"]
    assert {slot["requests"] for slot in document["slots"]} == {18}
    assert document["plan"]["blocks_max"] < 200


def test_mirrored_arms_of_two_endpoints(tmp_path: Path) -> None:
    with ScriptedEngine() as a, ScriptedEngine() as b:
        a.behaviour = Behaviour(tokens=4, first_token_s=0.02, token_s=0.005)
        b.behaviour = Behaviour(tokens=4, first_token_s=0.06, token_s=0.005)
        done = compared(
            *(a.url, b.url, *LOAD, "--mode", "mirrored"),
            *("--wash-out", "200ms", "--max-duration", "6s", "--json"),
            *("--save", str(tmp_path / "x.run")),
        )
    document = json.loads(done.stdout)
    assert document["metrics"]["ttft_p50_s"]["ratio"] > 1.5
    if "load generator was the limit" not in document["reason"]:
        assert (document["verdict"], done.returncode) == ("worse", 1)
    assert all(slot["order"] is None for slot in document["slots"])
    assert (tmp_path / "x-a.run").exists()
    assert (tmp_path / "x-b.run").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("http://127.0.0.1:9",), "a second endpoint", id="one arm"),
        pytest.param(
            ("http://127.0.0.1:9", "http://127.0.0.1:8", "--duration", "5s"),
            "--max-duration",
            id="an option of one run",
        ),
        pytest.param(
            ("http://127.0.0.1:9", "http://127.0.0.1:8", "--max-duration", "5s"),
            "4 pairs",
            id="no time for four pairs",
        ),
        pytest.param(
            ("http://127.0.0.1:9", "http://127.0.0.1:8", "--metric", "nonsense"),
            "--metric",
            id="no metric",
        ),
        pytest.param(
            ("http://127.0.0.1:9", "--mode", "mirrored", "--command-a", "true"),
            "two endpoints",
            id="one endpoint cannot be two at once",
        ),
    ],
)
def test_what_cannot_be_compared_is_told_by_option(arguments: tuple[str, ...], told: str) -> None:
    done = compared(*arguments, "--rate", "5")
    assert done.returncode == 2
    assert told in done.stderr
