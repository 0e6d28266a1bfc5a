"""Media in prompts: whatever they are, no crash, a bounded load, and text that is counted once."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.request import Endpoint
from mileage.gateway.audio_header import audio_duration_s
from mileage.gateway.bodies import parse_body
from mileage.gateway.image_header import image_size
from mileage.gateway.media import AUDIO_FRAMES_TOTAL_MAX, IMAGE_PATCHES_TOTAL_MAX
from mileage.policy.modality import IMAGE_PATCHES_MAX, image_patches
from tests.support.media_samples import gif, jpeg, png, wav, webp

ENDPOINTS: list[Endpoint] = ["chat", "responses", "messages"]
HEADERS = (
    png(3, 2), jpeg(9, 9, before=(b"abc",)), gif(5, 6), webp(7, 8), webp(7, 8, chunk=b"VP8L"),
    webp(7, 8, chunk=b"VP8 "), wav(0.01), wav(0.01, before=b"abc"),
)  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file with some bytes changed, cut off or put in, or any bytes."""
    data = bytearray(draw(st.sampled_from(HEADERS) | st.binary(max_size=80)))
    for at, value in draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=6)):
        if at < len(data):
            data[at] = value
    at = draw(st.integers(0, 80))
    return bytes(data[:at]) + draw(st.binary(max_size=8)) + bytes(data[at:])


urls = st.one_of(
    files().map(lambda data: "data:image/png;base64," + base64.b64encode(data).decode()),
    files().map(lambda data: base64.b64encode(data).decode()),
    st.text(max_size=30).map(lambda text: "data:image/png;base64," + text),
    st.text(max_size=30),
    st.just("https://a/b.png"),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | urls,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "content", "output", "image_url", "audio_url", "video_url", "input_audio",
             "source", "detail", "url", "data", "text"]
        ),
        inner
        | st.sampled_from(["text", "image_url", "image", "input_audio", "audio_url", "video_url"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(ENDPOINTS), st.lists(values, min_size=1, max_size=4))
def test_any_prompt_has_a_load_within_bounds(endpoint: Endpoint, prompt: list[Any]) -> None:
    fields = {"model": "m", "messages": prompt, "input": prompt}
    body = parse_body(endpoint, msgspec.json.encode(fields))
    assert 0 <= body.media.image_patches <= IMAGE_PATCHES_TOTAL_MAX
    assert 0 <= body.media.audio_frames <= AUDIO_FRAMES_TOTAL_MAX
    size = len(msgspec.json.encode(prompt))
    assert 0 <= body.text_bytes <= size
    assert body.text_bytes == size - body.media.payload_bytes
    assert 1 <= body.prompt_tokens_estimate <= body.prompt_tokens_max


@given(files())
def test_any_bytes_have_a_size_in_its_range_or_none(data: bytes) -> None:
    size = image_size(data)
    if size is not None:
        assert 1 <= min(size) <= max(size) < 2**32
        assert 4 <= image_patches(*size) <= IMAGE_PATCHES_MAX
    assert 0 <= audio_duration_s(data, len(data)) <= len(data) / 500


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.integers(0, 3))
def test_text_beside_media_is_counted_whole(texts: list[str], images: int) -> None:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    empty = {"type": "image_url", "image_url": {"url": ""}}
    full = {"type": "image_url", "image_url": {"url": "data:;base64," + "iVBORw0K/+" * 9}}
    text_bytes = []
    for image in (empty, full):
        content = parts + [image] * images
        fields = {"model": "m", "messages": [{"role": "user", "content": content}]}
        text_bytes.append(parse_body("chat", msgspec.json.encode(fields)).text_bytes)
    assert text_bytes[0] == text_bytes[1]
