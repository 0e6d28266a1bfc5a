"""Modality: what images and audio in a prompt weigh, as tokens of context. All are estimates."""

from __future__ import annotations

import math

from mileage.core.request import Modality, Request

__all__ = [
    "AUDIO_FRAMES_MAX",
    "AUDIO_FRAMES_PER_TOKEN",
    "IMAGE_PATCHES_MAX",
    "IMAGE_PATCHES_PER_TOKEN",
    "VIDEO_PATCHES",
    "audio_frames",
    "image_patches",
    "media_tokens",
    "modality_of",
    "normalised_load_tokens",
]

IMAGE_PATCHES_PER_TOKEN = 4
"""Patches of 14 x 14 pixels, merged 2 x 2 into one token: Qwen2-VL (arXiv:2409.12191, section 2.1)
and Qwen2.5-VL. OpenAI bills gpt-4o 85 tokens an image and 170 for each tile of 512 x 512 pixels
after scaling to 2048 and then to a short side of 768 (platform.openai.com/docs/guides/vision):
1024 x 1024 is 765 tokens there and 1369 here."""
AUDIO_FRAMES_PER_TOKEN = 4
"""Frames of a log-mel spectrogram, one each 10 ms (Whisper, arXiv:2212.04356, section 2.2). Its
encoder halves them and a pooling layer halves them again: 25 tokens a second in Qwen2-Audio
(arXiv:2407.10759, section 2) and Qwen2.5-Omni. Models that leave out the second step take 50."""
IMAGE_PATCHES_MAX = 65_536
"""Of one image, however large: `max_pixels` of Qwen2-VL's preprocessor_config.json, 12,845,056."""
AUDIO_FRAMES_MAX = 360_000
"""Of one recording: one hour."""

_PATCH_PX = 14
_CELL_PX = 2 * _PATCH_PX
_PIXELS_MIN = 3136
_PIXELS_MAX = IMAGE_PATCHES_MAX * _PATCH_PX * _PATCH_PX
_SIDE_MAX = 2**32 - 1
_FRAMES_PER_S = 100
_LOW_DETAIL_PX = 512
_VIDEO_FRAMES = 32
_VIDEO_FRAMES_PER_PATCH = 2
_VIDEO_PX = (640, 360)


def image_patches(width_px: int, height_px: int, *, low_detail: bool = False) -> int:
    """Patches that the vision encoder makes of an image: 1..IMAGE_PATCHES_MAX, a multiple of 4.

    Sides are rounded to whole tokens (28 pixels), and the image is scaled where it has fewer than
    3136 or more than 12,845,056 pixels: `smart_resize` of Qwen2-VL, with the bounds of its released
    preprocessor_config.json. `low_detail`: first scaled into 512 x 512, as OpenAI describes
    `"detail": "low"`. Sides below 1 count as 1, those beyond 32 bits as the largest that has them.
    """
    width, height = (float(min(max(1, side), _SIDE_MAX)) for side in (width_px, height_px))
    if low_detail:
        scale = min(1.0, _LOW_DETAIL_PX / max(width, height))
        width, height = max(1.0, width * scale), max(1.0, height * scale)
    columns, rows = round(width / _CELL_PX), round(height / _CELL_PX)
    pixels = columns * rows * _CELL_PX * _CELL_PX
    if pixels > _PIXELS_MAX:
        scale = math.sqrt(_PIXELS_MAX / (width * height))
        columns = max(1, math.floor(width * scale / _CELL_PX))
        rows = max(1, math.floor(height * scale / _CELL_PX))
    elif pixels < _PIXELS_MIN:
        scale = math.sqrt(_PIXELS_MIN / (width * height))
        columns = math.ceil(width * scale / _CELL_PX)
        rows = math.ceil(height * scale / _CELL_PX)
    # A strip of one pixel's height may still be too large: engines refuse such shapes.
    return min(IMAGE_PATCHES_MAX, columns * rows * IMAGE_PATCHES_PER_TOKEN)


def audio_frames(duration_s: float) -> int:
    """Spectrogram frames of a recording: 1..AUDIO_FRAMES_MAX; what is no duration counts as 0 s."""
    if not duration_s > 0:  # also NaN
        return 1
    return max(1, math.ceil(min(duration_s * _FRAMES_PER_S, AUDIO_FRAMES_MAX)))


VIDEO_PATCHES = image_patches(*_VIDEO_PX) * _VIDEO_FRAMES // _VIDEO_FRAMES_PER_PATCH
"""Of any video, since its length and size are not looked at: 32 frames, which vLLM samples from it
by default, of 640 x 360 pixels, where a patch spans two frames (Qwen2-VL, section 2.1)."""


def media_tokens(request: Request) -> float:
    """Tokens of context that the request's images and audio take."""
    return (
        request.image_patches / IMAGE_PATCHES_PER_TOKEN
        + request.audio_frames / AUDIO_FRAMES_PER_TOKEN
    )


def normalised_load_tokens(request: Request) -> float:
    """Tokens of context that the whole prompt takes: its text, images and audio in one unit."""
    return request.prompt_tokens_estimate + media_tokens(request)


def modality_of(request: Request) -> Modality:
    """What kind of request it is: of images and audio the one that weighs more, else text."""
    image = request.image_patches / IMAGE_PATCHES_PER_TOKEN
    audio = request.audio_frames / AUDIO_FRAMES_PER_TOKEN
    if image <= 0 and audio <= 0:
        return "text"
    return "image" if image >= audio else "audio"
