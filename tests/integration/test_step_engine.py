"""The step engine as a process: answers in its known time, metrics that the gateway reads."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.calls import Mix, poisson_times
from benchmarks.support.load_client import Loop, run_loops, run_schedule
from benchmarks.support.payloads import http_request
from benchmarks.support.probe import ask
from benchmarks.support.processes import LOCAL
from benchmarks.support.step_model import MODELS
from benchmarks.support.step_upstream import StepUpstream, late_steps
from mileage.scrape.gpu_dcgm import dcgm_samples
from mileage.scrape.reading import read

pytestmark = pytest.mark.quiet

MODEL = MODELS["small"]
MIX = Mix(model="steps", prompt_tokens=(20, 40), output_tokens=(3, 6))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepUpstream]:
    directory: Path = tmp_path_factory.mktemp("steps")
    with StepUpstream(directory, core=0, noise_ratio=0.0, kv_blocks=512) as engine:
        yield engine


def post(engine: StepUpstream, path: str, **body: Any) -> tuple[int, Any]:
    answer = ask(engine.port, http_request(json.dumps(body).encode(), path=path))
    return answer.status, json.loads(answer.body)


def test_a_stream_has_its_tokens_at_the_steps_of_the_model(engine: StepUpstream) -> None:
    calls = MIX.calls(1, [0.0, 0.5, 1.0])
    before = engine.stats()["prompt_tokens"]
    run_schedule(engine.port, calls, drain_s=5.0)
    assert engine.stats()["prompt_tokens"] - before == sum(call.prompt_tokens for call in calls)
    for call in calls:
        assert (call.status, call.whole, call.error) == (200, True, None)
        assert call.events == call.output_tokens
        assert call.ttft_s is not None
        assert call.itl_mean_s is not None
        assert call.ttft_s >= MODEL.step_s(0, 0, call.prompt_tokens)
        assert call.itl_mean_s == pytest.approx(MODEL.step_s(1, 0, 0), rel=0.1)


def test_a_whole_answer_counts_its_tokens(engine: StepUpstream) -> None:
    messages = [{"role": "user", "content": "x" * 100}]
    status, answer = post(
        engine, "/v1/chat/completions", model="steps", messages=messages, max_tokens=3
    )
    assert status == 200
    assert answer["usage"] == {"prompt_tokens": 34, "completion_tokens": 3, "total_tokens": 37}
    assert answer["choices"][0]["message"]["content"] == " tok" * 3


def test_usage_ends_a_stream_that_asked_for_it(engine: StepUpstream) -> None:
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1,
        "user": "prompt_tokens=7",
    }
    answer = ask(engine.port, http_request(json.dumps(body).encode()))
    events = answer.body.decode().split("\n\n")
    assert events[-2] == "data: [DONE]"
    assert json.loads(events[-3].removeprefix("data: "))["usage"]["prompt_tokens"] == 7


def test_embedding_calls_cost_a_fixed_time_and_tell_their_texts_apart(engine: StepUpstream) -> None:
    before = engine.stats()
    status, answer = post(engine, "/v1/embeddings", model="m", input=["a", "b", "a"])
    vectors = [item["embedding"] for item in answer["data"]]
    after = engine.stats()
    assert status == 200
    assert vectors[0] == vectors[2] != vectors[1]
    assert after["embedding_calls"] - before["embedding_calls"] == 1
    assert after["embedding_items"] - before["embedding_items"] == 3


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        pytest.param(
            "/v1/chat/completions", {"prompt": "x" * 40_000}, 400, id="too long for the cache"
        ),
        pytest.param("/v1/chat/completions", {"max_tokens": "x"}, 400, id="no number"),
        pytest.param("/v1/embeddings", {}, 400, id="nothing to embed"),
        pytest.param("/v1/nonsense", {}, 404, id="no such path"),
    ],
)
def test_what_it_cannot_do_is_an_error(
    engine: StepUpstream, path: str, body: dict[str, Any], status: int
) -> None:
    assert post(engine, path, **body)[0] == status


def test_a_client_that_leaves_aborts_its_request(engine: StepUpstream) -> None:
    before = engine.stats()["aborted"]
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 4000}
    with socket.create_connection(("127.0.0.1", engine.port), timeout=60) as client:
        client.sendall(http_request(json.dumps(body).encode()))
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    engine.wait_idle()
    stats = engine.stats()
    assert stats["aborted"] - before == 1


def test_the_gateway_reads_its_metrics_as_vllms(engine: StepUpstream) -> None:
    page = LOCAL.open(f"{engine.url}/metrics", timeout=60).read()
    view = read("vllm", page, "r", 0.0).view
    stats = engine.stats()
    assert (view.running, view.waiting, view.kv_cache_usage_ratio) == (0, 0, 0.0)
    assert view.kv_tokens_max == 512 * 16
    assert view.output_tokens_total == stats["output_tokens"] > 0
    assert view.prompt_tokens_total == stats["prompt_tokens"] > 0


def test_its_compute_is_as_busy_as_its_steps_say(engine: StepUpstream) -> None:
    page = f"{engine.url}/dcgm/metrics"
    LOCAL.open(page, timeout=60).read()
    run_loops(engine.port, [Loop(MIX.endless(4), 1)], duration_s=1.0)
    (gpu,) = dcgm_samples(LOCAL.open(page, timeout=60).read(), at_s=0.0)
    ratio = gpu.sm_active_ratio
    assert ratio is not None
    # One sequence at a time is bound by memory: its decodes take 3.5 of 30 ms of compute.
    assert 0.05 < ratio < 0.3


def test_loops_keep_their_connections_busy(engine: StepUpstream) -> None:
    loops = [Loop(MIX.endless(2), 3), Loop(MIX.endless(3), 1)]
    calls = run_loops(engine.port, loops, duration_s=1.0)
    assert all(call.whole and call.status == 200 for call in calls)
    busy_s = sum(call.e2e_s or 0.0 for call in calls)
    assert busy_s == pytest.approx(4.0, rel=0.25)  # the last ones end after the second


def test_a_load_that_is_given_up_says_so(engine: StepUpstream) -> None:
    slow = Mix(model="steps", prompt_tokens=(20, 20), output_tokens=(3000, 3000))
    calls = slow.calls(1, poisson_times(1, 100.0, 0.1))
    took_s = run_schedule(engine.port, calls, drain_s=0.3)
    assert calls
    assert took_s < 2.0
    assert {(call.whole, call.error) for call in calls} == {(False, "given up")}
    engine.wait_idle()


def test_no_server_is_an_error_of_every_call() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        calls = MIX.calls(1, [0.0, 0.01])
        run_schedule(unused.getsockname()[1], calls, drain_s=1.0)
    assert [call.status for call in calls] == [0, 0]
    assert all(call.error is not None and "no connection" in call.error for call in calls)


@pytest.mark.parametrize(
    ("lags", "late"),
    [
        pytest.param({"steps": 0}, False, id="no step"),
        pytest.param({"sum_s": 0.3, "stalled_s": 0.0}, False, id="three percent, made up for"),
        pytest.param({"sum_s": 0.6, "stalled_s": 0.0}, True, id="six percent"),
        pytest.param({"sum_s": 0.3, "stalled_s": 0.2}, True, id="time given up"),
    ],
)
def test_late_steps_are_told(lags: dict[str, float], late: bool) -> None:
    found = late_steps({"steps": 100, "steps_s": 10.0, "max_s": 0.1, **lags})
    assert (found is not None) is late
