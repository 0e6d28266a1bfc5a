"""The embedded engine's own life behind a real gateway: killed, restarted, orphaned, no model."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from tests.support.gateway import Gateway, run_mileage, wait_until
from tests.support.raw_http import RawClient, events_of, post

HI: list[Any] = [{"role": "user", "content": "Say hi."}]
START_S = 300.0
RESTART_S = 60.0


def embedded(directory: Path) -> Gateway:
    arguments = ("--threads", "1", "--slots", "2", "--context-tokens", "512")
    return Gateway(directory, *arguments, start_s=START_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_is_given_up_at_once_where_the_model_still_loads(
    tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ("--threads", "1", "--slots", "1", "--context-tokens", "512")
    with Gateway(tmp_path, *arguments, unready=True) as gateway:
        (engine,) = wait_until(gateway.embedded, "the engine is being started", START_S)
        engine.suspend()
        gateway.signal(number)
        assert gateway.wait() == 0
        assert not engine.is_running()
        assert "ready in" not in gateway.log


def say(client: openai.OpenAI) -> str:
    answer = client.chat.completions.create(model="smollm2", messages=HI, max_tokens=4)
    return answer.choices[0].message.content or ""


def long_stream() -> bytes:
    body = {"model": "smollm2", "messages": HI, "max_tokens": 400, "stream": True}
    return post("/v1/chat/completions", {**body, "ignore_eos": True})


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with embedded(tmp_path) as gateway:
        yield gateway


def test_killed_engine_is_restarted_and_its_streams_end_with_an_error(gateway: Gateway) -> None:
    (engine,) = gateway.embedded()
    with gateway.client(max_retries=0) as client, RawClient(gateway.port) as stream:
        assert say(client)
        stream.send(long_stream())
        assert stream.read_head()[0] == 200
        begun = stream.read_chunk()
        engine.kill()
        events = events_of(begun + b"".join(iter(stream.read_chunk, b"")))
        assert events[-1] == "[DONE]"
        assert events[-2]["error"]["code"] == "upstream_failed"
        with gateway.client(max_retries=0) as hasty, pytest.raises(openai.InternalServerError):
            say(hasty)
        wait_until(lambda: answers(client), "the engine serves again", RESTART_S)
        (successor,) = gateway.embedded()
        assert successor.pid != engine.pid
        wait_until(lambda: gateway.replica()["state"] == "up", "shown as up")
    assert "was killed by SIGKILL" in gateway.log


def answers(client: openai.OpenAI) -> bool:
    try:
        return bool(say(client))
    except openai.InternalServerError:
        return False


def test_engine_and_workers_end_when_the_supervisor_is_killed(gateway: Gateway) -> None:
    with RawClient(gateway.port) as stream:
        stream.send(long_stream())
        assert stream.read_head()[0] == 200
        children = gateway.kill_supervisor()
        assert len(children) == 3  # the engine, a worker, and what looks at telemetry
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, [process.cmdline() for process in alive]
        events = events_of(b"".join(iter(stream.read_chunk, b"")))
        assert events[-2]["error"]["code"] == "upstream_failed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"this is no model at all", "GGUF", id="text"),
        pytest.param(b"", "GGUF", id="an empty file"),
        pytest.param(b"GGUF\x03\x00\x00\x00", "truncated", id="a header that is cut off"),
        pytest.param(None, "model.gguf", id="no file"),
    ],
)
def test_a_file_that_is_no_model_is_refused_by_its_name(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    ended = run_mileage("serve", "--model", str(path), "--port", "0", state=tmp_path / "state")
    assert ended.returncode == 1, ended.stderr
    assert str(path) in ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
