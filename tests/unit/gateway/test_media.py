"""Media in prompts: found where the APIs put them, weighed, and never taken for text."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.gateway.bodies import Body, parse_body
from mileage.gateway.media import (
    AUDIO_FRAMES_TOTAL_MAX,
    IMAGE_PATCHES_TOTAL_MAX,
    UNKNOWN_AUDIO_S,
    UNKNOWN_IMAGE_PX,
    may_have_media,
)
from mileage.policy.modality import VIDEO_PATCHES, audio_frames, image_patches
from tests.support.media_samples import data_url, gif, jpeg, multimodal_chat, png, wav, webp

PHOTO = png(100, 60)
PATCHES = image_patches(100, 60)
UNKNOWN = image_patches(*UNKNOWN_IMAGE_PX)
SPEECH = wav(2.0)
FRAMES = audio_frames(2.0)
BARE = base64.b64encode(PHOTO).decode()
SPOKEN = base64.b64encode(SPEECH).decode()
HI = {"type": "text", "text": "hi"}


def chat(*parts: Any, **message: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts), **message}]}


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def parsed(fields: dict[str, Any] | bytes, endpoint: Endpoint = "chat") -> Body:
    raw = fields if isinstance(fields, bytes) else msgspec.json.encode(fields)
    return parse_body(endpoint, raw)


def responses(*items: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items)}


@pytest.mark.parametrize(
    ("endpoint", "fields", "patches", "frames"),
    [
        pytest.param("chat", chat(HI, image(data_url(PHOTO))), PATCHES, 0, id="an image"),
        pytest.param("chat", chat(image(data_url(PHOTO)), image(data_url(PHOTO))), 2 * PATCHES, 0,
                     id="two images"),
        pytest.param("chat", chat(image(data_url(png(2000, 1000), "image/png"), detail="low")),
                     image_patches(512, 256), 0, id="low detail"),
        pytest.param("chat", chat(image(data_url(PHOTO), detail="high")), PATCHES, 0,
                     id="high detail"),
        pytest.param("chat", chat({"type": "image_url", "image_url": data_url(PHOTO)}), PATCHES, 0,
                     id="the URL without an object around it"),
        pytest.param("chat", chat({"image_url": data_url(PHOTO)}), PATCHES, 0, id="no type"),
        pytest.param("chat", chat("hi", image(data_url(PHOTO))), PATCHES, 0, id="text first"),
        pytest.param("chat", chat(image("https://a/b.png")), UNKNOWN, 0, id="an image elsewhere"),
        pytest.param("chat", chat({"type": "image_url", "image_url": None, "uuid": "a"}), UNKNOWN,
                     0, id="an image that the engine has"),
        pytest.param("chat", chat({"type": "input_audio", "input_audio": {"data": SPOKEN,
                     "format": "wav"}}), 0, FRAMES, id="audio"),
        pytest.param("chat", chat({"type": "audio_url", "audio_url": {"url": data_url(SPEECH,
                     "audio/wav")}}), 0, FRAMES, id="audio in a data URL"),
        pytest.param("chat", chat({"type": "audio_url", "audio_url": {"url": "https://a/b.mp3"}}),
                     0, audio_frames(UNKNOWN_AUDIO_S), id="audio elsewhere"),
        pytest.param("chat", chat({"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}),
                     VIDEO_PATCHES, 0, id="a video"),
        pytest.param("chat", multimodal_chat("hi", images=[PHOTO], audio=[SPEECH]), PATCHES, FRAMES,
                     id="an image and audio"),
        pytest.param("responses", responses({"role": "user", "content": [{"type": "input_image",
                     "image_url": data_url(PHOTO), "detail": "auto"}]}), PATCHES, 0,
                     id="responses"),
        pytest.param("responses", responses({"role": "user", "content": [{"type": "input_image",
                     "file_id": "f"}]}), UNKNOWN, 0, id="responses, a file"),
        pytest.param("responses", responses({"type": "computer_call_output", "output": {"type":
                     "computer_screenshot", "image_url": data_url(PHOTO)}}), PATCHES, 0,
                     id="responses, a screenshot"),
        pytest.param("responses", responses({"type": "function_call_output", "output": [{"type":
                     "input_image", "image_url": data_url(PHOTO)}]}), PATCHES, 0,
                     id="responses, what a function gave"),
        pytest.param("messages", chat({"type": "image", "source": {"type": "base64",
                     "media_type": "image/png", "data": BARE}}), PATCHES, 0, id="Anthropic"),
        pytest.param("messages", chat({"type": "image", "source": {"type": "url",
                     "url": "https://a/b.png"}}), UNKNOWN, 0, id="Anthropic, elsewhere"),
        pytest.param("messages", chat({"type": "tool_result", "content": [{"type": "image",
                     "source": {"type": "base64", "data": BARE}}]}), PATCHES, 0,
                     id="Anthropic, what a tool gave"),
    ],
)  # fmt: skip
def test_media_are_found_where_the_apis_have_them(
    endpoint: Endpoint, fields: dict[str, Any], patches: int, frames: int
) -> None:
    body = parsed(fields, endpoint)
    assert (body.media.image_patches, body.media.audio_frames) == (patches, frames)
    assert body.text_bytes < 200, "base64 is no text"
    assert body.prompt_tokens_estimate == body.text_bytes // 4 + 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(jpeg(100, 60), id="JPEG"),
        pytest.param(jpeg(100, 60, before=(bytes(60_000),)), id="JPEG with a preview"),
        pytest.param(webp(100, 60), id="WebP"),
        pytest.param(gif(100, 60), id="GIF"),
    ],
)
def test_other_formats_are_weighed_too(data: bytes) -> None:
    assert parsed(chat(image(data_url(data)))).media.image_patches == PATCHES


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(chat({"type": "text", "text": data_url(PHOTO)}), id="a text that is a URL"),
        pytest.param(chat({"type": "text", "text": '"image_url": {"url": "data:"}'}), id="a quote"),
        pytest.param(chat({"type": "text", "text": "image", "image_url": "x"}), id="typed as text"),
        pytest.param(chat("image_url", "input_audio"), id="texts in a list"),
        pytest.param({"model": "m", "messages": [{"role": "user", "content": data_url(PHOTO)}]},
                     id="a text without parts"),
        pytest.param(chat({"type": "tool_use", "input": {"type": "image", "image_url": "x"}}),
                     id="what a tool was asked"),
        pytest.param({"model": "m", "messages": [{"role": "user", "content": "[{"}],
                     "tools": [{"type": "function", "function": {"parameters": {"properties":
                     {"image_url": {"type": "image_url"}}}}}]}, id="a tool that takes images"),
        pytest.param({"model": "m", "messages": [{"role": "user", "content": "x"}],
                     "metadata": [{"image_url": data_url(PHOTO)}]}, id="outside of the prompt"),
    ],
)  # fmt: skip
def test_talk_of_images_is_text(fields: dict[str, Any]) -> None:
    body = parsed(fields)
    assert (body.media.image_patches, body.media.audio_frames) == (0, 0)
    assert body.text_bytes == sum(
        len(msgspec.json.encode(fields[key])) for key in ("messages", "tools") if key in fields
    )


@pytest.mark.parametrize(
    ("part", "patches", "frames"),
    [
        pytest.param(image("data:image/png;base64,%%%"), UNKNOWN, 0, id="no base64"),
        pytest.param(image("data:image/png;base64,"), UNKNOWN, 0, id="empty base64"),
        pytest.param(image("data:image/png," + "x" * 99), UNKNOWN, 0, id="data not in base64"),
        pytest.param(image(5), UNKNOWN, 0, id="a number for a URL"),
        pytest.param({"type": "image_url", "image_url": [5]}, UNKNOWN, 0, id="a list for a URL"),
        pytest.param(image("data:image/png"), UNKNOWN, 0, id="a data URL without data"),
        pytest.param(image("\u00e9\ud7ff"), UNKNOWN, 0, id="no URL"),
        pytest.param(image(data_url(PHOTO[:20])), UNKNOWN, 0, id="half a header"),
        pytest.param(image(data_url(png(0, 1, noise=False))), UNKNOWN, 0, id="no width"),
        pytest.param(image(data_url(PHOTO[:16] + b"\x7f\xff\xff\xff" * 2)), 65_536, 0,
                     id="2,147,483,647 pixels each way"),
        pytest.param({"type": "input_audio", "input_audio": {"data": "%%%"}}, 0, 1,
                     id="audio that is no base64"),
        pytest.param({"type": "input_audio", "input_audio": {}}, 0, 3000, id="audio without data"),
        pytest.param({"type": "input_audio"}, 0, 3000, id="audio without anything"),
    ],
)  # fmt: skip
def test_broken_media_fail_nothing_and_weigh_what_can_be(
    part: dict[str, Any], patches: int, frames: int
) -> None:
    media = parsed(chat(HI, part)).media
    assert (media.image_patches, media.audio_frames) == (patches, frames)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([{"content": [[image("x")]]}], id="a list for a part"),
        pytest.param([5, {"content": [image("x")]}], id="a number for a message"),
        pytest.param([{"type": 7, "content": [image("x")]}], id="a number for a type"),
    ],
)
def test_a_prompt_of_no_known_shape_is_text(messages: list[Any]) -> None:
    body = parsed({"model": "m", "messages": messages})
    assert body.media.image_patches == 0
    assert body.text_bytes == len(msgspec.json.encode(messages))


def test_deep_nesting_is_text() -> None:
    nested = b'{"content":[' * 400 + b'"x"' + b"]}" * 400
    body = parsed(b'{"model":"m","messages":[%b]}' % nested)
    assert body.text_bytes == len(nested) + 2


def escaped(url: str, by: dict[str, str]) -> bytes:
    """A chat about lines of text, with an image whose URL is written by another encoder."""
    text = '{"type":"text","text":"one\\ntwo"}'
    for char, written in by.items():
        url = url.replace(char, written)
    part = f'{{"type":"image_url","image_url":{{"url":"{url}"}}}}'
    return f'{{"model":"m","messages":[{{"content":[{text},{part}]}}]}}'.encode()


@pytest.mark.parametrize(
    "by",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"/": "\\/"}, id="PHP escapes /"),
        pytest.param({"+": "\\u002B"}, id=".NET escapes +"),
        pytest.param({"/": "\\/", "+": "\\u002b"}, id="both"),
    ],
)
def test_escapes_in_a_payload_are_no_text(by: dict[str, str]) -> None:
    body = parsed(escaped(data_url(PHOTO), by))
    assert body.media.image_patches == PATCHES
    assert body.text_bytes == parsed(escaped("", {})).text_bytes


def test_base64_in_lines_is_read() -> None:
    lined = base64.encodebytes(PHOTO).decode().replace("\n", "\r\n")
    body = parsed(chat(HI, image("data:image/png;base64," + lined)))
    assert body.media.image_patches == PATCHES
    assert body.text_bytes == parsed(chat(HI, image(""))).text_bytes


def test_url_safe_base64_is_read() -> None:
    data = jpeg(100, 60, before=(b"\xff\xfe\xfb" * 9,))
    url = "data:image/jpeg;base64," + base64.urlsafe_b64encode(data).decode()
    assert parsed(chat(image(url))).media.image_patches == PATCHES


def test_the_load_of_a_body_is_bounded() -> None:
    huge = image(data_url(PHOTO[:16] + b"\x7f\xff\xff\xff" * 2))
    assert parsed(chat(*[huge] * 256)).media.image_patches == 256 * 65_536
    body = parsed(chat(*[image("")] * 20_000))
    assert body.media.image_patches == IMAGE_PATCHES_TOTAL_MAX
    speech = {"type": "audio_url", "audio_url": {"url": "https://a"}}
    assert parsed(chat(*[speech] * 20_000)).media.audio_frames == AUDIO_FRAMES_TOTAL_MAX


def test_media_beyond_the_256th_weigh_what_unknown_ones_do() -> None:
    body = parsed(chat(*[image(data_url(gif(28, 112)))] * 258))
    assert body.media.image_patches == 256 * image_patches(28, 112) + 2 * UNKNOWN
    speech = {"type": "input_audio", "input_audio": {"data": SPOKEN}}
    assert parsed(chat(*[speech] * 257)).media.audio_frames == 256 * FRAMES + 3000


@pytest.mark.parametrize(
    "filler",
    [
        pytest.param({}, id="objects"),
        pytest.param("ab", id="texts"),
    ],
)
def test_a_body_that_would_take_many_times_its_memory_is_not_looked_at(filler: Any) -> None:
    body = parsed(chat(*[filler] * 1_000_001, image(data_url(PHOTO))))
    assert body.media.image_patches == 0


def test_tools_and_system_prompts_are_text_of_the_prompt() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object", "required": ["a"]}}]
    plain = parsed(chat(HI), "messages")
    full = parsed(chat(HI) | {"tools": tools, "system": "Be brief."}, "messages")
    more = len(msgspec.json.encode(tools)) + len('"Be brief."')
    assert full.text_bytes == plain.text_bytes + more
    asked = {"model": "m", "input": "hi"}
    more = len('"Be brief."')
    assert (
        parsed(asked | {"instructions": "Be brief."}, "responses").text_bytes
        == parsed(asked, "responses").text_bytes + more
    )


@pytest.mark.parametrize(
    ("raw", "may"),
    [
        pytest.param(b'{"messages":[{"content":"hi"}]}', False, id="a text"),
        pytest.param(b'{"messages":[{"content":"see [1], [a] and [[."}]}', False, id="brackets"),
        pytest.param(b'{"input":"hi"}', False, id="no list at all"),
        pytest.param(b'{"messages":[{"content":[{"type":"text"}]}]}', True, id="parts"),
        pytest.param(b'{"messages": [ {"content": [\n {"type":"text"}]}]}', True, id="spaced"),
        pytest.param(b'{"messages":[{"content":"%b"}]}' % (b"[" * 99), True, id="many brackets"),
    ],
)
def test_one_glance_tells_most_texts_from_prompts_with_parts(raw: bytes, may: bool) -> None:
    assert may_have_media(raw) == may


@pytest.mark.parametrize(
    ("endpoint", "fields", "choices"),
    [
        pytest.param("chat", chat(HI) | {"n": 3}, 3, id="chat"),
        pytest.param("chat", chat(HI) | {"n": None}, 1, id="null"),
        pytest.param("completions", {"model": "m", "prompt": "a", "n": 2}, 2, id="completions"),
        pytest.param("embeddings", {"model": "m", "input": "a", "n": 2}, 1, id="embeddings"),
        pytest.param("messages", chat(HI), 1, id="messages"),
    ],
)
def test_the_number_of_answers_asked_for(
    endpoint: Endpoint, fields: dict[str, Any], choices: int
) -> None:
    assert parsed(fields, endpoint).choices == choices
