"""Reload: a real gateway whose configuration changes under it, three ways; and what stays."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.certificate import write_certificate
from tests.support.engine import ScriptedEngine
from tests.support.engine_script import Behaviour
from tests.support.gateway import run_mileage, wait_until
from tests.support.raw_http import RawClient, get
from tests.support.reload_site import ReloadSite

BODY: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
SECRET = "TOPSECRET-value-of-some-length"


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as engine:
        yield engine


@pytest.fixture
def site(tmp_path: Path, engine: ScriptedEngine) -> Iterator[ReloadSite]:
    made = ReloadSite(tmp_path, engine)
    with made.gateway:
        yield made


def new_key(site: ReloadSite, tenant: str) -> tuple[str, str]:
    made = run_mileage("keys", "create", tenant, "--json", state=site.gateway.state)
    document = json.loads(made.stdout)
    return document["key"], document["key_hash"]


def test_an_admin_call_applies_what_is_hot_and_names_the_rest(site: ReloadSite) -> None:
    assert site.status()["version"] == 1
    answer = site.reload(
        '[aliases]\ngpt-4o = "toy"\n[server]\nworkers = 2\nidle_timeout_s = 9\n'
        '[slo]\nttft_s = 2\n[slo.models."toy"]\nitl_s = 1\n'
    )
    assert answer["version"] == 2
    assert answer["changed"] == [
        "server.workers",
        "server.idle_timeout_s",
        "aliases.gpt-4o",
        "slo.ttft_s",
        "slo.models.toy",
    ]
    assert answer["restart_needed"] == ["server.workers"]
    assert answer["applied_by"] == [worker.pid for worker in site.gateway.workers()]
    assert answer["unconfirmed"] == []
    assert site.chat(model="gpt-4o").status_code == 200
    shown = site.gateway.admin("/api/v1/config")
    assert (shown["server"]["workers"], shown["server"]["idle_timeout_s"]) == (1, 9.0)
    assert site.status()["restart_needed"] == ["server.workers"]
    assert site.metric("mileage_config_restart_needed") == 1
    assert site.metric("mileage_config_version") == 2


def test_what_is_not_new_makes_no_new_version(site: ReloadSite) -> None:
    assert site.reload("")["version"] == 1
    assert site.reload("# a comment")["changed"] == []
    assert site.reload("[server]\nworkers = 2")["version"] == 1
    assert site.reload("[server]\nworkers = 2\n[slo]\nttft_s = 1")["version"] == 2
    assert site.reload("")["changed"] == ["slo.ttft_s"]
    assert site.status()["version"] == 3
    assert site.status()["reloads_total"] == 5


def test_a_signal_reloads(site: ReloadSite) -> None:
    site.write('[aliases]\ngpt-4o = "toy"')
    site.gateway.signal(signal.SIGHUP)
    wait_until(lambda: site.status()["version"] == 2, "SIGHUP reloads")
    assert site.chat(model="gpt-4o").status_code == 200
    site.write("[slo]\nttft_s = 0\n")
    site.gateway.signal(signal.SIGHUP)
    wait_until(lambda: site.status()["failures_total"] == 1, "SIGHUP is refused")
    assert f"{site.path}:2: slo.ttft_s: got 0.0, expected a positive" in site.gateway.log


def test_a_written_file_is_reloaded_once_it_is_whole(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    site = ReloadSite(tmp_path, engine, "--log-level", "warning")
    with site.gateway:
        site.write('[aliases]\ngpt-4o = "toy"')
        wait_until(lambda: site.status()["version"] == 2, "the file is seen")
        assert site.chat(model="gpt-4o").status_code == 200
        # One that is written in place, and not whole at first.
        whole = site.text('[aliases]\ngpt-5 = "toy"')
        with site.path.open("w") as file:
            file.write(whole[:5])
            file.flush()
            wait_until(lambda: site.status()["failures_total"] == 1, "half a file is refused")
            assert site.chat(model="gpt-4o").status_code == 200
            file.write(whole[5:])
        wait_until(lambda: site.status()["version"] == 3, "the whole file is seen")
        assert site.status()["error"] is None
        assert site.chat(model="gpt-5").status_code == 200
        site.write("[server]\nwatch_config = false")
        wait_until(lambda: site.status()["version"] == 4, "it does not watch any more")
        assert site.status()["failures_total"] == 1


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        pytest.param('[governor]\npolicy = "best"', ":2: governor.policy: ", id="a policy"),
        pytest.param("[slo]\nttft_s = 0", ":2: slo.ttft_s: got 0.0, expected", id="a target of 0"),
        pytest.param(
            '[[tenants.a.budgets]]\namount = 1\nper = "day"\nunit = "euro"',
            ":4: tenants.a.budgets[0].unit: ",
            id="the unit of a budget",
        ),
        pytest.param("[governor]\nspeed = 1", ":2: governor.speed: ", id="an unknown key"),
        pytest.param("[governor", ":1: --config: ", id="no TOML"),
        pytest.param(
            '[server]\ntls_cert = "/nowhere"\ntls_key = "/nowhere"',
            ":2: server.tls_cert: ",
            id="a certificate that is not there",
        ),
        pytest.param('[server]\nhost = "0.0.0.0"', ":2: server.host: ", id="open to all"),
        pytest.param(
            f'[tenants.a]\nkey_hashes = ["{SECRET}"]',
            ":2: tenants.a.key_hashes: ",
            id="a key in the clear",
        ),
    ],
)
def test_a_broken_file_changes_nothing_and_is_told(
    site: ReloadSite, sections: str, message: str
) -> None:
    site.reload('[aliases]\ngpt-4o = "toy"')
    told = site.refused(f"{sections}\n[aliases]\nother = 'toy'" if "\n" in sections else sections)
    assert told.startswith(f"{site.path}{message}")
    assert SECRET not in told + site.gateway.log
    assert told in site.gateway.log
    status = site.status()
    assert (status["version"], status["error"], status["failures_total"]) == (2, told, 1)
    assert site.metric("mileage_config_reload_failures_total") == 1
    assert site.metric("mileage_config_last_reload_ok") == 0
    assert site.chat(model="gpt-4o").status_code == 200
    assert site.chat(model="other").status_code == 404
    printed = run_mileage(
        *("reload", "--admin", site.gateway.listening.admin_url or ""), state=site.gateway.state
    )
    assert (printed.returncode, printed.stdout) == (2, "")
    assert told in printed.stderr
    assert site.reload('[aliases]\nother = "toy"')["version"] == 3
    assert site.status()["error"] is None
    assert site.metric("mileage_config_last_reload_ok") == 1


def test_the_command_prints_what_came_of_it(site: ReloadSite) -> None:
    arguments = ("reload", "--admin", site.gateway.listening.admin_url or "")
    state = site.gateway.state
    site.write("[slo]\nttft_s = 3\n[server]\nworkers = 2")
    printed = run_mileage(*arguments, state=state)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.splitlines()[:3] == [
        "version         2",
        "changed         slo.ttft_s",
        "restart needed  server.workers",
    ]
    document = json.loads(run_mileage(*arguments, "--json", state=state).stdout)
    assert (document["version"], document["changed"]) == (2, ["server.workers"])
    unknown = run_mileage(*arguments, "--token-file", "/nowhere", state=state)
    assert unknown.returncode == 2
    assert "--token-file" in unknown.stderr
    nobody = run_mileage("reload", "--admin", "http://127.0.0.1:1", state=state)
    assert nobody.returncode == 1
    assert "127.0.0.1:1" in nobody.stderr


def test_only_those_who_may_can_reload(site: ReloadSite) -> None:
    assert site.post(authorization="Bearer wrong").status_code == 401
    url = f"{site.gateway.listening.admin_url}/api/v1/config/reload"
    assert httpx.post(url).status_code == 401
    assert site.gateway.admin("/api/v1/status")["config"]["reloads_total"] == 0


def test_a_key_that_is_revoked_opens_no_more_and_its_streams_are_finished(site: ReloadSite) -> None:
    old, old_hash = new_key(site, "team")
    new, new_hash = new_key(site, "team")
    site.reload(f'[tenants.team]\nkey_hashes = ["{old_hash}", "{new_hash}"]')
    assert site.chat().status_code == 401, "keys are needed from now on"
    site.engine.behaviour = Behaviour(tokens=6, hold_at=3)
    headers = {"authorization": f"Bearer {old}"}
    with (
        httpx.Client(timeout=60) as client,
        client.stream(
            "POST",
            f"{site.gateway.url}/chat/completions",
            json={**BODY, "stream": True},
            headers=headers,
        ) as stream,
    ):
        events = stream.iter_lines()
        assert next(events).startswith("data: ")
        answer = site.reload(f'[tenants.team]\nkey_hashes = ["{new_hash}"]')
        assert answer["changed"] == ["tenants.team.key_hashes"]
        assert site.chat(old).status_code == 401
        site.engine.release()
        rest = [line for line in events if line]
        assert rest[-1] == "data: [DONE]"
    site.engine.reset()
    assert site.chat(new).status_code == 200
    site.reload("")
    assert site.chat().status_code == 200, "without tenants no key is needed"


def test_limits_of_the_server_hold_for_what_begins_later(site: ReloadSite) -> None:
    with RawClient(site.gateway.port) as kept:
        assert kept.ask(get("/healthz")).status == 200
        site.reload(
            '[server]\nheaders_max = 2\ncors_origins = ["https://a.example"]\nconnections_max = 1'
        )
        # The connection is an old one, the request on it is not.
        assert kept.ask(get("/healthz", "Origin: https://a.example")).status == 200
        with RawClient(site.gateway.port) as other:
            assert other.ask(get("/healthz")).status == 503
        answer = kept.ask(get("/v1/models", "Origin: https://a.example"))
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert kept.ask(get("/healthz", "A: 1", "B: 2")).status == 431


def test_reloads_at_once_are_done_one_after_the_other(site: ReloadSite) -> None:
    site.write("[slo]\nttft_s = 3")
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(site.post())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(answer.json()["changed"]) for answer in answers) == [0] * 7 + [1]
    assert {answer.json()["version"] for answer in answers} == {2}
    assert site.status()["reloads_total"] == 8


def test_all_workers_are_told_and_later_ones_begin_with_it(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    site = ReloadSite(tmp_path, engine, "--no-watch", "--workers", "3")
    with site.gateway:
        workers = site.gateway.workers()
        answer = site.reload('[aliases]\ngpt-4o = "toy"')
        assert sorted(answer["applied_by"]) == sorted(worker.pid for worker in workers)
        assert all(site.chat(model="gpt-4o").status_code == 200 for _ in range(20))
        workers[0].kill()

        def versions() -> list[int | None]:
            rows = site.gateway.admin("/api/v1/status")["processes"]
            return [r["config_version"] for r in rows if r["role"] == "worker"]

        wait_until(
            lambda: len(site.gateway.workers()) == 3 and versions() == [2] * 3, "a new worker"
        )
        assert all(site.chat(model="gpt-4o").status_code == 200 for _ in range(20))
        # One that does not answer is named, and the others go on.
        stopped = site.gateway.workers()[1]
        stopped.suspend()
        try:
            answer = site.reload("")
            assert answer["unconfirmed"] == [stopped.pid]
            assert len(answer["applied_by"]) == 2
        finally:
            stopped.resume()
        wait_until(lambda: versions() == [3] * 3, "it hears of it when it goes on")


def test_a_renewed_certificate_is_used_for_new_connections(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    certificate, key = write_certificate(old)
    renewed = write_certificate(new)
    site = ReloadSite(
        tmp_path, engine, *("--no-watch", "--tls-cert", str(certificate), "--tls-key", str(key))
    )

    def presented() -> bytes:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", site.gateway.port)) as sock,
            context.wrap_socket(sock) as tls,
        ):
            return tls.getpeercert(binary_form=True) or b""

    with site.gateway:
        first = presented()
        renewed[0].replace(certificate)
        message = site.refused("")
        assert "server.tls_cert" in message, "it does not fit the old key"
        assert presented() == first
        renewed[1].replace(key)
        answer = site.reload("")
        assert (answer["version"], answer["changed"]) == (2, ["server.tls_cert"])
        assert presented() not in (first, b"")
        assert site.reload("")["version"] == 2
        os.utime(certificate)
        assert site.reload("")["version"] == 2


def test_engines_come_and_go_and_what_they_run_is_finished(site: ReloadSite) -> None:
    with ScriptedEngine(models=("toy", "other")) as second:
        more = f'[[engines]]\nkind = "vllm"\nname = "b"\nurl = "{second.url}"\n'
        own = site.engines
        assert site.chat(model="other").status_code == 404
        answer = site.reload(more)
        assert (answer["changed"], answer["restart_needed"]) == (["engines.b"], [])
        wait_until(lambda: site.chat(model="other").status_code == 200, "b is used")
        assert [r["name"] for r in site.gateway.admin("/api/v1/replicas")["replicas"]] == ["b", "a"]
        # a is left while it runs something: that is finished, and nothing more comes.
        site.engine.behaviour = Behaviour(tokens=4, hold_at=2)
        second.behaviour = Behaviour(tokens=4, hold_at=2)
        body = {**BODY, "stream": True}
        with httpx.Client(timeout=60) as client:
            streams = []
            while not (site.engine.started and second.started):
                request = client.build_request(
                    "POST", f"{site.gateway.url}/chat/completions", json=body
                )
                streams.append(client.send(request, stream=True))
            site.engines = ""
            answer = site.reload(more)
            assert answer["changed"] == ["engines.a"]
            assert [r["name"] for r in site.gateway.admin("/api/v1/replicas")["replicas"]] == ["b"]
            site.engine.release()
            second.release()
            for stream in streams:
                assert [line for line in stream.iter_lines() if line][-1] == "data: [DONE]"
                stream.close()
        second.reset()
        site.engine.until(lambda: not site.engine.connections, "no connection to a is left")
        served = site.engine.started
        assert all(site.chat().status_code == 200 for _ in range(10))
        assert site.engine.started == served
        # b's name is given to another engine, at another address.
        answer = site.reload(own.replace('name = "a"', 'name = "b"'))
        assert set(answer["changed"]) >= {"engines.b.url"}
        wait_until(lambda: site.chat(model="toy").status_code == 200, "b is the other engine")
        assert site.chat(model="other").status_code == 404
        assert site.gateway.replica("b")["models"] == ["toy"]
        # Without any, an engine of our own would have to be started.
        answer = site.reload("")
        assert answer["restart_needed"] == ["engines.b"]
        assert site.chat().status_code == 200


def test_a_closed_terminal_ends_it_in_order(tmp_path: Path, engine: ScriptedEngine) -> None:
    master, slave = pty.openpty()
    command = [str(Path(sys.executable).with_name("mileage")), "serve", "--json"]
    command += ["--port", "0", "--admin-port", "0", "--engine", f"vllm={engine.url}"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    try:
        os.close(slave)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"{")
        process.send_signal(signal.SIGHUP)
        told = b""
        while b"configuration 1 is in force (SIGHUP)" not in told:
            told += os.read(master, 65_536)
        os.close(master)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        process.stdout.close()
    finally:
        process.kill()
        process.wait(60)
