"""Bodies: what is sent to each endpoint."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.gateway.media import find_media
from mileage.loadgen.bodies import Bodies
from mileage.loadgen.media import Media
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.server_kind import ServerKind


def body(
    endpoint: Endpoint = "chat",
    *texts: bytes,
    options: PlanOptions | None = None,
    **more: Any,
) -> dict[str, Any]:
    usual: dict[str, Any] = {"model": "m", "output_tokens": 9, "stream": True}
    made = Bodies(options or PlanOptions(model="m")).body(
        endpoint, texts or (b"one two",), **{**usual, **more}
    )
    decoded: dict[str, Any] = msgspec.json.decode(made)
    return decoded


def test_a_chat_asks_for_its_stream_with_usage() -> None:
    assert body() == {
        "messages": [{"role": "user", "content": "one two"}],
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("completions", {"prompt": "one two", "max_tokens": 9, "stream": False}),
        ("responses", {"input": "one two", "max_output_tokens": 9, "stream": False}),
        (
            "messages",
            {
                "messages": [{"role": "user", "content": "one two"}],
                "max_tokens": 9,
                "stream": False,
            },
        ),
    ],
)
def test_other_endpoints_that_generate(endpoint: Endpoint, expected: dict[str, Any]) -> None:
    made = body(endpoint, stream=False)
    assert made == {**expected, "model": "m", "temperature": 0.0}


def test_embeddings_of_one_text_and_of_several() -> None:
    assert body("embeddings") == {"input": "one two", "model": "m"}
    assert body("embeddings", b"one", b"two")["input"] == ["one", "two"]


@pytest.mark.parametrize(
    ("server", "asked", "sent"),
    [
        ("vllm", None, True),
        ("sglang", None, True),
        ("llamacpp", None, True),
        ("mileage", None, True),
        ("openai", None, None),
        ("triton", None, None),
        ("openai", True, True),
        ("vllm", False, None),
    ],
)
def test_answers_go_on_where_the_server_can(
    server: ServerKind, asked: bool | None, sent: bool | None
) -> None:
    options = PlanOptions(model="m", server=server, ignore_eos=asked)
    assert body(options=options).get("ignore_eos") is sent
    assert "ignore_eos" not in body("embeddings", options=options)


def test_temperature_is_left_to_the_server_where_none_is_given() -> None:
    assert "temperature" not in body(options=PlanOptions(model="m", temperature=None))
    assert body(options=PlanOptions(model="m", temperature=0.7))["temperature"] == 0.7


def test_names_are_escaped() -> None:
    assert body(model='a"b\\', user="c\n")["model"] == 'a"b\\'


def test_a_user_is_told_in_the_way_of_the_endpoint() -> None:
    assert body(user="acme")["user"] == "acme"
    assert body("messages", user="acme")["metadata"] == {"user_id": "acme"}


def test_further_fields_win() -> None:
    options = PlanOptions(model="m", fields={"max_tokens": 3, "top_p": 0.5})
    made = body(options=options)
    assert (made["max_tokens"], made["top_p"]) == (3, 0.5)


def test_media_are_parts_that_a_gateway_reads() -> None:
    media = Media()
    image, audio = media.png(400, "a"), media.wav(250, "a")
    made = body(image=image, audio=audio)
    kinds = [part["type"] for part in made["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "input_audio"]
    raw = msgspec.json.encode(made)
    found = find_media(memoryview(msgspec.json.encode(made["messages"])), raw)
    assert (found.image_patches, found.audio_frames) == (400, 250)
