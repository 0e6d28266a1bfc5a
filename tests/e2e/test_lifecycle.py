"""The gateway's own life: draining, killed processes, a ledger that loses nothing finished."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.engine import Behaviour, ScriptedEngine
from tests.support.gateway import Gateway, free_port, wait_until
from tests.support.load import Load
from tests.support.local_http import LOCAL
from tests.support.raw_http import RawClient, events_of, get, post

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "toy", "messages": HELLO}


@contextlib.contextmanager
def held_streams(
    gateway: Gateway, engine: ScriptedEngine, count: int = 1
) -> Iterator[list[RawClient]]:
    """Open streams whose first token has arrived, and that go on when the engine is released."""
    engine.behaviour = Behaviour(hold_at=1)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(count)]
        for client in clients:
            client.send(post(CHAT, {**BODY, "stream": True}))
            assert client.read_head()[0] == 200
        engine.until(lambda: engine.running == count, "the streams are under way")
        engine.behaviour = Behaviour()
        yield clients


def test_drain_finishes_what_is_in_flight_and_refuses_what_is_new(tmp_path: Path) -> None:
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, engines=[engine.url]) as gateway,
        held_streams(gateway, engine) as (stream,),
        RawClient(gateway.port) as idle,
    ):
        assert idle.ask(get("/readyz")).status == 200
        gateway.signal(signal.SIGTERM)
        assert idle.closed(), "a connection that waits for nothing is closed"
        wait_until(lambda: ready(gateway) == 503, "not ready for more")
        with RawClient(gateway.port) as new:
            refusal = new.ask(post(CHAT, BODY))
            assert (refusal.status, refusal.headers["retry-after"]) == (503, "5")
            assert "shutting down" in refusal.json["error"]["message"]
            assert new.closed()
        engine.release()
        events = events_of(b"".join(iter(stream.read_chunk, b"")))
        assert events[-1] == "[DONE]"
        assert gateway.wait() == 0
        assert stream.closed()
        assert [(row.outcome, row.status) for row in gateway.requests(1)] == [("ok", 200)]
        assert len(engine.received) == 1


def ready(gateway: Gateway) -> int:
    with RawClient(gateway.port) as client:
        return client.ask(get("/readyz")).status


def test_second_signal_ends_at_once_and_the_next_start_marks_what_was_in_flight(
    tmp_path: Path,
) -> None:
    with ScriptedEngine() as engine:
        with (
            Gateway(tmp_path, engines=[engine.url]) as gateway,
            held_streams(gateway, engine),
        ):
            gateway.signal(signal.SIGINT)
            wait_until(lambda: "stopping" in gateway.log, "the first signal was heard")
            gateway.signal(signal.SIGINT)
            assert gateway.wait() == 0
        with Gateway(tmp_path, engines=[engine.url]) as gateway:
            assert [row.outcome for row in gateway.requests(1)] == ["lost"]


def test_start_without_an_engine_answers_waits_and_can_be_stopped(tmp_path: Path) -> None:
    port = free_port()
    config = """
[[engines]]
kind = "vllm"
url = "http://127.0.0.1:%d"
health_interval_s = 0.2
"""
    with ScriptedEngine() as engine:
        engine.die()
        arguments = ("--port", str(port))
        with Gateway(tmp_path, *arguments, config=config % engine.port, unready=True) as gateway:
            with connected(port) as client:
                assert client.ask(get("/healthz")).status == 200
                assert client.ask(get("/readyz")).status == 503
                refusal = client.ask(post(CHAT, BODY))
                assert (refusal.status, refusal.json["error"]["code"]) == (503, "no_replica")
                name = f"engine 127.0.0.1:{engine.port}"
                wait_until(lambda: f"{name} is down: {engine.url}/" in gateway.log, "a line on it")
                engine.listen()
                gateway.wait_ready()
                assert client.ask(post(CHAT, BODY)).status == 200
                assert gateway.log.count(f"{name} is down") == 1
                assert gateway.log.count(f"{name} is up now") == 1
            assert gateway.stop() == 0
        engine.die()
        with Gateway(tmp_path, *arguments, config=config % engine.port, unready=True) as gateway:
            connected(port).close()
            assert gateway.stop() == 0


def connected(port: int) -> RawClient:
    """A connection, as soon as somebody listens."""

    def connect() -> RawClient | None:
        with contextlib.suppress(ConnectionRefusedError):
            return RawClient(port)
        return None

    client = wait_until(connect, "the data plane is there", 60)
    assert isinstance(client, RawClient)
    return client


def test_drain_by_the_control_api_ends_the_process_too(tmp_path: Path) -> None:
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url]) as gateway:
        assert gateway.admin("/api/v1/drain", "POST") == {"draining": True}
        assert gateway.wait() == 0


@pytest.mark.parametrize(
    ("log_level", "told"),
    [
        pytest.param("warning", True, id="and the worker says so"),
        pytest.param("error", False, id="and the worker is as quiet as it is told to be"),
    ],
)
def test_drain_is_bounded_by_its_timeout(tmp_path: Path, log_level: str, told: bool) -> None:
    config = "[server]\ndrain_timeout_s = 1.0\n"
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, "--log-level", log_level, engines=[engine.url], config=config) as gateway,
        held_streams(gateway, engine),
    ):
        started_s = time.monotonic()
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
        assert time.monotonic() - started_s >= 1.0
        assert ("cut by the drain timeout" in gateway.log) is told
        engine.until(lambda: engine.aborted == 1, "the generation was given up")


def test_killed_worker_is_replaced_and_no_finished_request_is_lost(tmp_path: Path) -> None:
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, "--workers", "3", engines=[engine.url]) as gateway,
        held_streams(gateway, engine, 12) as streams,
    ):
        before = {process.pid for process in gateway.workers()}
        # The kernel spreads connections by chance: not every worker need have one of them.
        victim = max(gateway.workers(), key=partial(streams_of, engine)).pid
        with Load(gateway.url, BODY) as load:
            load.wait_for_more(50)
            psutil.Process(victim).kill()
            load.wait_for_more(50)
            wait_until(lambda: replaced(gateway, victim), "another worker is in its place")
            load.wait_for_more(50)
        assert before - {process.pid for process in gateway.workers()} == {victim}
        engine.release()
        ends = [end_of(stream) for stream in streams]
        assert ends.count("[DONE]") < len(ends), "the victim had streams in flight"
        assert ends.count("[DONE]") > 0, "the other workers' streams were not touched"
        assert not load.refused
        gateway.stop()
        rows = gateway.requests_ended()
        check_ledger(rows, load)
        lost = [row for row in rows if row.outcome == "lost"]
        assert sum(row.stream for row in lost) == ends.count("cut")
        # What broke may have been anywhere between the client and the last byte of its answer.
        assert len(lost) <= ends.count("cut") + load.broken
        assert len(rows) <= len(ends) + len(load.finished) + load.broken
        assert {row.outcome for row in rows} == {"ok", "lost"}


def streams_of(engine: ScriptedEngine, worker: psutil.Process) -> int:
    """Its connections to the engine."""
    remote = [each.raddr for each in worker.net_connections() if each.raddr]
    return sum(address.port == engine.port for address in remote)


def replaced(gateway: Gateway, victim: int) -> bool:
    pids = [process.pid for process in gateway.workers()]
    return victim not in pids and len(pids) == 3


def end_of(stream: RawClient) -> str:
    """What a held stream ends with: its own last event, or a connection that is cut."""
    try:
        data = b"".join(iter(stream.read_chunk, b""))
    except (ConnectionError, AssertionError):
        return "cut"
    return str(events_of(data)[-1])


def check_ledger(rows: list[Any], load: Load) -> None:
    """Every answer that a client had whole is in the ledger as ok, and nothing twice."""
    ok = {row.id for row in rows if row.outcome == "ok"}
    missing = set(load.finished) - ok
    assert not missing, f"finished, but not in the ledger: {missing}"
    assert len({row.id for row in rows}) == len(rows)


def test_workers_of_a_killed_supervisor_finish_what_is_in_flight_and_end(tmp_path: Path) -> None:
    with ScriptedEngine() as engine:
        with (
            Gateway(tmp_path, "--workers", "2", engines=[engine.url]) as gateway,
            held_streams(gateway, engine, 4) as streams,
            Load(gateway.url, BODY) as load,
        ):
            load.wait_for_more(100)
            workers = gateway.kill_supervisor()
            wait_until(lambda: 503 in load.refused, "what is new is refused")
            # The next one may start while they still work: what they write is not lost to it.
            with Gateway(tmp_path, engines=[engine.url]) as successor:
                engine.release()
                assert [end_of(stream) for stream in streams] == ["[DONE]"] * 4
                _, alive = psutil.wait_procs(workers, timeout=60)
                assert not alive, "the workers end by themselves"
                load.stop()
                successor.stop()
            rows = successor.requests_ended()
        assert set(load.refused) == {503}
        check_ledger(rows, load)
        assert [row.outcome for row in rows if row.stream] == ["ok"] * 4


def test_next_start_after_kill_9_of_all_has_what_finished_and_marks_what_did_not(
    tmp_path: Path,
) -> None:
    with ScriptedEngine() as engine:
        with (
            Gateway(tmp_path, "--workers", "2", engines=[engine.url]) as gateway,
            held_streams(gateway, engine, 4),
            Load(gateway.url, BODY) as load,
        ):
            load.wait_for_more(100)
            gateway.kill_all()
        with Gateway(tmp_path, engines=[engine.url]) as gateway:
            assert (
                httpx.post(f"{gateway.url}/chat/completions", json=BODY, **LOCAL).status_code == 200
            )
            gateway.stop()
            rows = gateway.requests_ended()
        check_ledger(rows, load)
        lost = [row for row in rows if row.outcome == "lost"]
        assert sum(row.stream for row in lost) == 4
        assert len(lost) <= 4 + load.broken
        assert {row.outcome for row in rows} == {"ok", "lost"}


def test_answer_that_a_client_has_is_on_record_when_all_is_killed_at_that_moment(
    tmp_path: Path,
) -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(end_s=60.0)
        with (
            Gateway(tmp_path, engines=[engine.url]) as gateway,
            RawClient(gateway.port) as client,
        ):
            client.send(post(CHAT, {**BODY, "stream": True}))
            client.read_head()
            while b"[DONE]" not in client.read_chunk():
                pass
            gateway.kill_all()
        with Gateway(tmp_path, engines=[engine.url]) as gateway:
            assert [row.outcome for row in gateway.requests(1)] == ["ok"]


def test_second_gateway_on_a_ledger_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url]) as gateway:
        second = gateway.run_second()
        assert second.returncode == 1
        assert f"is in use by another gateway (pid {gateway.pid})" in second.stderr
        assert str(tmp_path / "state" / "mileage" / "ledger") in second.stderr
        assert "ledger.directory" in second.stderr
        assert "Traceback" not in second.stderr
        assert httpx.post(f"{gateway.url}/chat/completions", json=BODY, **LOCAL).status_code == 200


def test_admin_port_in_use_is_told_by_the_setting_that_names_it(tmp_path: Path) -> None:
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url]) as gateway:
        port = (gateway.listening.admin_url or "").rpartition(":")[2]
        second = gateway.run_second("--admin-port", port, state=tmp_path / "other")
        assert second.returncode == 2
        assert "admin.port" in second.stderr
        assert port in second.stderr
        assert "Traceback" not in second.stderr


def test_an_ipv6_address_is_told_as_a_url_that_works(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with (
        ScriptedEngine() as engine,
        Gateway(tmp_path, "--host", "::1", engines=[engine.url]) as gateway,
    ):
        assert gateway.url.startswith("http://[::1]:")
        assert httpx.post(f"{gateway.url}/chat/completions", json=BODY, **LOCAL).status_code == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_port_in_use_is_told_by_the_setting_that_names_it(tmp_path: Path, workers: str) -> None:
    with ScriptedEngine() as engine, Gateway(tmp_path, engines=[engine.url]) as gateway:
        arguments = ("--port", str(gateway.port), "--workers", workers)
        second = gateway.run_second(*arguments, state=tmp_path / "other")
        assert second.returncode == 2
        assert "server.port" in second.stderr
        assert str(gateway.port) in second.stderr
        assert "Traceback" not in second.stderr
