"""What images and audio weigh: the sizes of published models, and bounds."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from mileage.core.request import Modality
from mileage.policy.modality import (
    AUDIO_FRAMES_MAX,
    IMAGE_PATCHES_MAX,
    VIDEO_PATCHES,
    audio_frames,
    image_patches,
    media_tokens,
    modality_of,
    normalised_load_tokens,
)
from tests.support.controllers import request


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        pytest.param(224, 224, 64, id="the size of the encoder's training"),
        pytest.param(512, 512, 324, id="a thumbnail"),
        pytest.param(640, 360, 299, id="a frame of a video"),
        pytest.param(1024, 768, 999, id="a slide"),
        pytest.param(1024, 1024, 1369, id="a square of a megapixel"),
        pytest.param(1920, 1080, 2691, id="a screenshot"),
        pytest.param(3024, 4032, 15552, id="a photo of a phone"),
        pytest.param(3584, 3584, 16384, id="as large as it is kept"),
        pytest.param(8000, 6000, 16170, id="larger: scaled down"),
        pytest.param(30, 30, 4, id="smaller than the least: scaled up"),
        pytest.param(42, 42, 4, id="a side halfway between two sizes"),
        pytest.param(20, 400, 14, id="narrower than a token"),
        pytest.param(1, 100, 20, id="a line"),
        pytest.param(12000, 61, 858, id="a banner"),
    ],
)
def test_an_image_has_the_tokens_that_qwen2_vl_gives_it(
    width: int, height: int, tokens: int
) -> None:
    """The figures are those of smart_resize in transformers, with the released max_pixels."""
    assert image_patches(width, height) == 4 * tokens
    assert image_patches(height, width) == 4 * tokens


@pytest.mark.parametrize(
    ("width", "height"),
    [
        pytest.param(2**31, 2**31, id="absurd"),
        pytest.param(2**31, 1, id="an absurd strip"),
        pytest.param(10**400, 10**400, id="beyond a float"),
        pytest.param(0, 0, id="nothing"),
        pytest.param(-5, 7, id="negative"),
    ],
)
def test_a_size_that_cannot_be_has_a_load_that_can(width: int, height: int) -> None:
    assert 4 <= image_patches(width, height) <= IMAGE_PATCHES_MAX
    assert image_patches(width, height) % 4 == 0
    assert 4 <= image_patches(width, height, low_detail=True) <= image_patches(512, 512)


def test_low_detail_is_the_image_scaled_into_512_pixels() -> None:
    assert image_patches(2048, 1024, low_detail=True) == image_patches(512, 256)
    assert image_patches(100, 100, low_detail=True) == image_patches(100, 100)


@pytest.mark.parametrize(
    ("duration_s", "frames"),
    [
        pytest.param(30.0, 3000, id="Whisper's window"),
        pytest.param(0.004, 1, id="a part of a frame"),
        pytest.param(0.0, 1, id="empty, and yet audio"),
        pytest.param(math.nan, 1, id="no number"),
        pytest.param(-1.0, 1, id="negative"),
        pytest.param(math.inf, AUDIO_FRAMES_MAX, id="for ever"),
        pytest.param(1e300, AUDIO_FRAMES_MAX, id="longer than an hour"),
    ],
)
def test_a_recording_has_100_frames_a_second(duration_s: float, frames: int) -> None:
    assert audio_frames(duration_s) == frames


def test_a_minute_of_audio_is_1500_tokens() -> None:
    assert media_tokens(request(1, audio_frames=audio_frames(60.0))) == 1500


def test_the_load_of_a_request_is_its_text_images_and_audio_in_tokens() -> None:
    mixed = request(1, prompt_tokens_estimate=10, image_patches=400, audio_frames=200)
    assert normalised_load_tokens(mixed) == 10 + 100 + 50
    assert normalised_load_tokens(request(1, prompt_tokens_estimate=10)) == 10


@pytest.mark.parametrize(
    ("patches", "frames", "modality"),
    [
        pytest.param(0, 0, "text", id="neither"),
        pytest.param(4, 0, "image", id="an image"),
        pytest.param(0, 1, "audio", id="audio"),
        pytest.param(400, 200, "image", id="both, the image weighs more"),
        pytest.param(4, 3000, "audio", id="both, the audio weighs more"),
        pytest.param(VIDEO_PATCHES, 0, "image", id="a video counts as images"),
    ],
)
def test_a_request_is_of_the_kind_that_weighs_most(
    patches: int, frames: int, modality: Modality
) -> None:
    assert modality_of(request(1, image_patches=patches, audio_frames=frames)) == modality


def tile_tokens(width: float, height: float) -> int:
    """What OpenAI bills gpt-4o for an image in high detail."""
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (scale * min(width, height)))
    return 85 + 170 * math.ceil(scale * width / 512) * math.ceil(scale * height / 512)


def test_the_pages_table_is_what_images_weigh(repository: Path) -> None:
    page = (repository / "docs" / "explanation" / "multimodal.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) x (\d+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(rows) >= 5
    for width, height, ours, theirs in rows:
        size = int(width), int(height)
        assert int(ours.replace(",", "")) == image_patches(*size) / 4, size
        assert int(theirs.replace(",", "")) == tile_tokens(*size), size
    assert f"| a video | {VIDEO_PATCHES // 4:,} tokens" in page
