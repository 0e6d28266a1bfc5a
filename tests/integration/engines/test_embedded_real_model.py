"""The embedded engine with llama.cpp and the bundled model: what the gateway relies on."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from gguf import GGUFWriter

from mileage.core.errors import EngineError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.child_log import ChildLog
from mileage.engines.embedded.child_params import ChildParams
from mileage.engines.embedded.child_process import COMMAND, ChildProcess
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.embedded.held_port import hold_port
from mileage.engines.embedded.resolve import resolve_model
from tests.support.gguf_builder import gguf

WAIT_S = 60.0
# One thread: two wait for each other at every step, which takes for ever on a busy machine.
CONFIG = EmbeddedConfig(slots=2, context_tokens=512, threads=1, restart_backoff_s=0.05)
SMALL = EmbeddedConfig(slots=1, context_tokens=256, threads=1)


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


@pytest.fixture(scope="module")
def model() -> Path:
    """The bundled model; fetched at the first run on this machine."""
    return resolve_model(EmbeddedConfig(), progress=no_progress, environ=os.environ)


class Served:
    """An engine that runs in an event loop of its own; its child answers at any time."""

    def __init__(self, config: EmbeddedConfig, model: Path, state_dir: Path) -> None:
        self.changes: list[EmbeddedStatus] = []
        self.engine = EmbeddedEngine(
            config, model_path=model, state_dir=state_dir, on_change=self.changes.append
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Served:
        self._thread.start()
        try:
            self._run(self.engine.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.engine.stop(10.0))
        self._end()

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.engine.url.removeprefix("http://"), timeout=WAIT_S)

    def send(
        self, connection: http.client.HTTPConnection, path: str, body: Mapping[str, object]
    ) -> http.client.HTTPResponse:
        headers = {
            "Authorization": self.engine.authorization,
            "Content-Type": "application/json",
        }
        connection.request("POST", path, json.dumps(body), headers)
        return connection.getresponse()

    def post(self, path: str, body: Mapping[str, object]) -> tuple[int, Any]:
        with contextlib.closing(self.connect()) as connection:
            response = self.send(connection, path, body)
            return response.status, json.load(response)

    def get(self, path: str, *, key: bool = True) -> tuple[int, Any]:
        headers = {"Authorization": self.engine.authorization} if key else {}
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, json.load(response)

    def complete(self, prompt: str = "1, 2, 3, 4, 5, 6,") -> str:
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 4}
        status, answer = self.post("/v1/completions", body)
        assert status == 200
        text: str = answer["choices"][0]["text"]
        return text


@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(CONFIG, model, tmp_path_factory.mktemp("state")) as running:
        yield running


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def chat(text: str, **options: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **options}


def test_a_chat_is_answered(served: Served) -> None:
    status, answer = served.post("/v1/chat/completions", chat("Say hello.", max_tokens=5))
    assert status == 200
    assert answer["choices"][0]["message"]["content"]
    assert answer["model"] == served.engine.served_name == "smollm2"
    assert answer["usage"]["completion_tokens"] <= 5
    assert answer["usage"]["prompt_tokens"] > 10


def test_the_model_continues_a_pattern(served: Served) -> None:
    assert served.complete() == " 7, "


def test_the_model_is_listed_by_its_served_name(served: Served) -> None:
    _, answer = served.get("/v1/models")
    assert [m["id"] for m in answer["data"]] == ["smollm2"]
    assert answer["data"][0]["meta"]["n_ctx"] == CONFIG.context_tokens


def test_a_stream_ends_with_reason_usage_and_done(served: Served) -> None:
    # Greedy, and never at an end: another choice of tokens may take several for one event.
    body = chat("Say hello.", temperature=0, ignore_eos=True, max_tokens=5, stream=True)
    body["stream_options"] = {"include_usage": True}
    with contextlib.closing(served.connect()) as connection:
        text = served.send(connection, "/v1/chat/completions", body).read().decode()
    *events, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert done == "[DONE]"
    first, *tokens, last, usage = map(json.loads, events)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all(t["choices"][0]["delta"]["content"] for t in tokens)
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5 == len(tokens)


def test_chat_and_embeddings_come_from_one_server(served: Served) -> None:
    before = served.complete()
    long_text = "one two three " * 100  # more than one step of the engine
    status, answer = served.post("/v1/embeddings", {"input": ["a cat", "a dog", long_text]})
    assert status == 200
    assert answer["usage"]["prompt_tokens"] > 256
    for item in answer["data"]:
        assert len(item["embedding"]) == 576
        assert math.isclose(math.hypot(*item["embedding"]), 1.0, rel_tol=1e-4)
    again = served.post("/v1/embeddings", {"input": "a cat"})[1]
    assert np.allclose(again["data"][0]["embedding"], answer["data"][0]["embedding"], atol=1e-4)
    assert served.complete() == before


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_other_dialects_are_answered(served: Served, path: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    if path == "/v1/responses":
        body = {"input": "Hi", "max_output_tokens": 4}
    status, answer = served.post(path, body)
    assert status == 200
    assert answer["usage"]["output_tokens"] == 4


def test_a_prompt_beyond_the_context_is_a_client_error(served: Served) -> None:
    status, answer = served.post("/v1/chat/completions", chat("word " * 600))
    assert status == 400
    assert answer["error"]["n_ctx"] == CONFIG.context_tokens


def test_only_the_holder_of_the_key_is_served(served: Served) -> None:
    assert served.get("/slots", key=False)[0] == 401
    assert served.get("/health", key=False)[0] == 200


def test_a_client_that_leaves_a_stream_frees_its_slot(served: Served) -> None:
    body = {"prompt": "Once", "max_tokens": 500, "ignore_eos": True, "stream": True}

    def busy() -> bool:
        return any(slot["is_processing"] for slot in served.get("/slots")[1])

    connection = served.connect()
    served.send(connection, "/v1/completions", body)
    assert busy()
    assert connection.sock is not None
    connection.close()
    left_s = time.monotonic()
    wait_until(lambda: not busy())
    assert time.monotonic() - left_s < 10.0


def test_metrics_are_served(served: Served) -> None:
    with contextlib.closing(served.connect()) as connection:
        connection.request(
            "GET", "/metrics", headers={"Authorization": served.engine.authorization}
        )
        text = connection.getresponse().read().decode()
    assert "llamacpp:tokens_predicted_total" in text


def test_signals_to_the_process_group_are_left_to_the_parent(served: Served) -> None:
    pid = served.engine.pid
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert served.complete()
    assert served.engine.pid == pid


def test_many_idle_connections_do_not_block_health(served: Served) -> None:
    idle = [served.connect() for _ in range(200)]
    try:
        for connection in idle:
            connection.connect()
        began_s = time.monotonic()
        assert served.get("/health")[0] == 200
        assert time.monotonic() - began_s < 4.0  # llama.cpp holds idle connections for 5 s
    finally:
        for connection in idle:
            connection.close()


def test_a_killed_child_is_back_at_the_same_address(served: Served) -> None:
    url, pid, seen = served.engine.url, served.engine.pid, len(served.changes)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(served.changes) == seen + 2)
    down, up = served.changes[seen:]
    assert (down.state, up.state) == ("down", "up")
    assert "SIGKILL" in (down.reason or "")
    assert served.engine.url == url
    assert served.engine.pid != pid
    assert served.complete()


def lora(path: Path) -> Path:
    """An adapter that is large enough to change what the model says."""
    noise = np.random.default_rng(3)
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    for layer in range(30):
        name = f"blk.{layer}.attn_q.weight"
        writer.add_tensor(f"{name}.lora_a", noise.normal(size=(4, 576)).astype(np.float32))
        writer.add_tensor(f"{name}.lora_b", noise.normal(size=(576, 4)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_adapter_changes_the_answers(served: Served, model: Path, tmp_path: Path) -> None:
    adapter = lora(tmp_path / "adapter.gguf")
    config = msgspec.structs.replace(SMALL, lora=(str(adapter),))
    with Served(config, model, tmp_path) as adapted:
        assert adapted.complete() != served.complete()


def test_converted_weights_and_cache_types_still_answer(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        SMALL, weights="q4_0", cache_type_k="q8_0", cache_type_v="q4_0", served_name="fast"
    )
    converted = resolve_model(config, progress=no_progress, environ=os.environ)
    with Served(config, converted, tmp_path) as fast:
        assert "7" in fast.complete()
        assert [m["id"] for m in fast.get("/v1/models")[1]["data"]] == ["fast"]


def test_a_model_that_llamacpp_refuses_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(gguf())  # a fine header, but of a model without anything
    with (
        pytest.raises(EngineError, match=r"could not start: .*error loading model"),
        Served(SMALL, path, tmp_path),
    ):
        pass


def test_a_cache_larger_than_memory_is_refused_before_it_is_tried(
    model: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        with contextlib.closing(hold_port()) as holder:
            params = ChildParams(
                parent_pid=os.getpid(),
                model=str(model),
                served_name="smollm2",
                port=holder.getsockname()[1],
                api_key="key",
                slots=8,
                context_tokens=512,
                threads=1,
                http_threads=8,
                cache_type_k="f16",
                cache_type_v="f16",
                kv_bytes=1 << 50,
            )
            with pytest.raises(EngineError, match=r"1048576\.0 GiB.*lower embedded\.slots"):
                await ChildProcess.start(
                    params, ChildLog(tmp_path / "log"), timeout_s=WAIT_S, command=COMMAND
                )

    asyncio.run(scenario())


PARENT = """
import asyncio, sys
from pathlib import Path
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine

async def main():
    engine = EmbeddedEngine(
        EmbeddedConfig(slots=1, context_tokens=256, threads=1),
        model_path=Path(sys.argv[1]),
        state_dir=Path(sys.argv[2]),
        on_change=lambda status: print(status.pid, flush=True),
    )
    await engine.start()
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_child_ends_when_its_parent_is_killed(model: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), str(tmp_path)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(WAIT_S)
