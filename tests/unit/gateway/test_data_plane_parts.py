"""Keys, ids, refusals and metrics of the data plane."""

from __future__ import annotations

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.core.timeline import RequestTimeline
from mileage.gateway.answer_head import forwarded_lines
from mileage.gateway.config import GatewayConfig, ServerConfig, TenantConfig
from mileage.gateway.keys import Caller, KeyRing, key_hash, new_key
from mileage.gateway.metrics import GatewayMetrics
from mileage.gateway.refusals import engine_error, engine_message, error_body, error_event
from mileage.gateway.request_ids import RequestIds


@pytest.mark.parametrize(
    ("authorization", "api_key", "tenant"),
    [
        pytest.param(b"Bearer %b", None, "team", id="bearer"),
        pytest.param(b"bearer  %b ", None, "team", id="other case, more spaces"),
        pytest.param(None, b"%b", "team", id="x-api-key"),
        pytest.param(None, None, None, id="no key"),
        pytest.param(b"Bearer %bx", None, None, id="wrong key"),
        pytest.param(b"Basic %b", None, None, id="other scheme"),
        pytest.param(b"Bearer ", None, None, id="empty key"),
    ],
)
def test_the_key_tells_the_tenant(
    authorization: bytes | None, api_key: bytes | None, tenant: str | None
) -> None:
    key = new_key()
    ring = KeyRing({key_hash(key): "team", key_hash(new_key()): "other"})
    filled = [v and v.replace(b"%b", key.encode()) for v in (authorization, api_key)]
    assert ring.caller(*filled) == (None if tenant is None else Caller(tenant))


def test_a_key_is_known_by_its_name() -> None:
    ci, old_ci, other = new_key(), new_key(), new_key()
    named = {key_hash(ci): "ci", key_hash(old_ci): "ci"}
    ring = KeyRing({key_hash(key): "team" for key in (ci, old_ci, other)}, named)
    seen = [ring.caller(b"Bearer " + key.encode(), None) for key in (ci, old_ci, other)]
    assert seen == [Caller("team", "ci"), Caller("team", "ci"), Caller("team")]


def test_without_any_key_everybody_is_the_default_tenant() -> None:
    assert KeyRing({}).caller(b"Bearer whatever", None) == Caller("default")


def test_keys_are_long_and_differ() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert all(len(new_key()) >= 40 for _ in range(10))


def test_ids_grow_also_when_the_clock_does_not() -> None:
    ids = RequestIds(5)
    seen = [ids.next(at) for at in (10**18, 10**18, 10**18 - 10**9, 10**18 + 10**6)]
    assert seen == sorted(set(seen))
    assert {value & 63 for value in seen} == {5}
    assert max(seen) < 2**63
    assert RequestIds(4).next(10**18) != RequestIds(5).next(10**18)
    with pytest.raises(ValueError, match="64"):
        RequestIds(64)


def test_errors_have_the_form_of_their_api() -> None:
    openai = msgspec.json.decode(error_body(400, "no", param="n", code="c"))
    assert openai == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "c"}
    }
    anthropic = msgspec.json.decode(error_body(503, "no", endpoint="messages"))
    assert anthropic == {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}


def test_error_events_end_a_stream_in_its_apis_form() -> None:
    assert error_event("x", "c", "chat").endswith(b"\n\ndata: [DONE]\n\n")
    assert error_event("x", "c", "messages").startswith(b"event: error\ndata: ")
    assert error_event("x\n\ny", "c", "responses").count(b"\n\n") == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b'{"error":{"message":"a","code":400}}', "a", id="OpenAI form"),
        pytest.param(b'{"error":"a"}', "a", id="error is text"),
        pytest.param(b'{"object":"error","message":"a"}', "a", id="older vLLM"),
        pytest.param(b'{"detail":"Not Found"}', "Not Found", id="FastAPI"),
        pytest.param(b"<html>", None, id="a proxy's page"),
        pytest.param(b"\xff", None, id="no text"),
        pytest.param(b"", None, id="nothing"),
    ],
)
def test_engines_errors_come_in_the_apis_form(body: bytes, message: str | None) -> None:
    assert engine_message(body) == message
    error = msgspec.json.decode(engine_error(400, body, "chat"))["error"]
    assert error["message"] == (message or "the engine answered 400 without an explanation")


def test_an_engines_error_in_the_right_form_is_not_touched() -> None:
    body = b'{"error": {"message": "a", "n_ctx": 5}}'
    assert engine_error(400, body, "chat") is body


def timeline(**changes: object) -> RequestTimeline:
    base = RequestTimeline(
        id=1,
        tenant="t",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=0,
        outcome="ok",
        status=200,
        finished_s=3.0,
    )
    return msgspec.structs.replace(base, **changes)


def test_a_finished_stream_is_counted() -> None:
    metrics = GatewayMetrics()
    metrics.finished(
        timeline(first_token_s=1.0, last_token_s=2.0, prompt_tokens=7, output_tokens=11), "m"
    )
    assert metrics.requests.values == {("m", "chat", "t", "ok"): 1}
    assert metrics.responses.values == {("200",): 1}
    assert metrics.usage.prompt_tokens.values == {("m", "t"): 7}
    assert metrics.usage.output_tokens.values == {("m", "t"): 11}
    assert metrics.latency.tpot.values[("m",)].sum == pytest.approx(0.1)
    assert metrics.latency.ttft.values[("m",)].sum == pytest.approx(1.0)
    assert metrics.latency.duration.values[("m",)].sum == pytest.approx(3.0)


def test_failures_and_missing_figures_do_not_enter_latencies() -> None:
    metrics = GatewayMetrics()
    metrics.finished(timeline(outcome="failed", first_token_s=1.0, last_token_s=1.0), "m")
    metrics.finished(timeline(stream=False), "m")
    assert metrics.latency.ttft.values == {}
    assert metrics.latency.tpot.values == {}
    assert metrics.usage.output_tokens.values == {}
    assert metrics.latency.duration.values[("m",)].count == 1


def test_the_configuration_travels_to_a_worker_unchanged() -> None:
    config = GatewayConfig(server=ServerConfig(port=1, cors_origins=("*",)), aliases={"a": "b"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=GatewayConfig) == config


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"port": 70_000}, "server.port", id="port"),
        pytest.param({"workers": 0}, "server.workers", id="workers"),
        pytest.param({"idle_timeout_s": float("nan")}, "server.idle_timeout_s", id="nan"),
        pytest.param({"body_timeout_s": 0}, "server.body_timeout_s", id="zero"),
        pytest.param({"tls_cert": "a.pem"}, "server.tls_key", id="half of TLS"),
        pytest.param(
            {"buffer_bytes_max": 2048}, "server.buffer_bytes_max", id="less than one body"
        ),
    ],
)
def test_bad_server_configuration_names_its_key(fields: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        ServerConfig(**fields)  # type: ignore[arg-type]
    assert error.value.key == key


def test_a_key_in_the_clear_is_no_hash() -> None:
    with pytest.raises(ConfigError, match="sha256"):
        TenantConfig(key_hashes=("mlg-secret",))


def test_a_client_is_told_how_the_engine_encoded_its_answer() -> None:
    headers = [(b"content-encoding", b"gzip"), (b"server", b"engine"), (b"connection", b"close")]
    assert forwarded_lines(headers) == b"content-encoding: gzip\r\n"
