"""Images and audio through a real gateway: every byte reaches the engine as it was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway
from tests.support.media_samples import multimodal_chat, png, wav
from tests.support.raw_http import RawClient, post

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_media_reach_the_engine_byte_for_byte(tmp_path: Path, stream: bool) -> None:
    """An image of 5 MiB; the client asks for usage itself, so that nothing need be added."""
    fields: dict[str, Any] = multimodal_chat(
        "What is it?", model="toy", images=[png(1400, 1250, seed=1), "https://a/b.png"],
        audio=[wav(3.0)],
    )  # fmt: skip
    asked = {"stream": stream, "stream_options": {"include_usage": True}, "seed": 2**53}
    body = msgspec.json.encode(fields | asked)
    assert len(body) > 6 * 2**20
    broken = multimodal_chat("And this?", model="toy", images=["data:image/png;base64,%%%"])
    with (
        ScriptedEngine(models=("toy",)) as engine,
        Gateway(tmp_path, engines=[f"openai={engine.url}"]) as gateway,
        RawClient(gateway.port) as client,
    ):
        assert client.ask(post(CHAT, body)).status == 200
        assert client.ask(post(CHAT, broken)).status == 200
        first, second = (r for r in engine.received if r.path == CHAT)
        assert first.body == body
        assert second.json == broken


def test_a_priority_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    chat = multimodal_chat("hi", model="toy")
    with (
        ScriptedEngine(models=("toy",)) as engine,
        Gateway(tmp_path, engines=[engine.url]) as gateway,
        RawClient(gateway.port) as client,
    ):
        answer = client.ask(post(CHAT, chat, "X-Mileage-Priority: now"))
        assert answer.status == 400
        assert answer.json["error"]["param"] == "x-mileage-priority"
        assert client.ask(post(CHAT, chat, "X-Mileage-Priority: low")).status == 200
        (received,) = (r for r in engine.received if r.path == CHAT)
        assert received.header("x-mileage-priority") is None
