"""Media: real PNG images and WAV recordings of a given weight, each with a content of its own."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import zlib
from collections.abc import Callable
from typing import Final

from mileage.policy.modality import (
    AUDIO_FRAMES_MAX,
    IMAGE_PATCHES_MAX,
    IMAGE_PATCHES_PER_TOKEN,
)

__all__ = ["Media", "image_cells"]

_CELL_PX: Final = 28
"""Of one token: a patch of 14 pixels, merged 2 x 2 (see mileage.policy.modality)."""
_CELLS_MIN: Final = 4
_ASPECT_MAX: Final = 2.0
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_RATE_HZ: Final = 16_000
_SAMPLES_PER_FRAME: Final = _RATE_HZ // 100
_OWN_SAMPLES: Final = 32
"""At the beginning of a recording: 2 ms. With the header's 44 bytes they end on a whole group of
base64."""
_TONE_HZ: Final = (200, 300, 500)
_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024


class Media:
    """Makes media as base64; equal seeds and arguments give equal ones.

    What is large in them depends on the size alone and is kept; what makes each one different (two
    colours, 2 ms of sound) is small: engines that look media up by their content find no two alike.
    """

    def __init__(self, seed: int = 0, *, cache_bytes_max: int = _CACHE_BYTES_MAX) -> None:
        self._seed = seed
        self._cache: dict[tuple[str, int], bytes] = {}
        self._cached_bytes = 0
        self._cache_bytes_max = cache_bytes_max

    def png(self, patches: int, owner: str) -> bytes:
        """An image of two colours that vision encoders make `patches` of, or nearly so."""
        columns, rows = image_cells(patches)
        width, height = columns * _CELL_PX, rows * _CELL_PX
        key = ("png", columns << 32 | rows)
        pixels = self._kept(key, lambda: base64.b64encode(_pixels(columns, rows)))
        colours = hashlib.blake2b(f"{self._seed} {owner}".encode(), digest_size=6).digest()
        header = struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)
        head = _PNG + _chunk(b"IHDR", header) + _chunk(b"PLTE", colours)  # 51 bytes: no rest mod 3
        return base64.b64encode(head) + pixels

    def wav(self, frames: int, owner: str) -> bytes:
        """A recording of so many frames of 10 ms: tones, 16-bit mono at 16 kHz."""
        frames = min(max(1, frames), AUDIO_FRAMES_MAX)
        # Half a frame less: what a duration in floating point is rounded up to is `frames` then.
        samples = frames * _SAMPLES_PER_FRAME - _SAMPLES_PER_FRAME // 2
        rest = self._kept(("wav", samples), lambda: base64.b64encode(_tones(samples)))
        own = hashlib.shake_128(f"{self._seed} {owner}".encode()).digest(2 * _OWN_SAMPLES)
        size = 2 * samples
        form = struct.pack("<HHIIHH", 1, 1, _RATE_HZ, 2 * _RATE_HZ, 2, 16)
        head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", len(form))
        return base64.b64encode(head + form + b"data" + struct.pack("<I", size) + own) + rest

    def _kept(self, key: tuple[str, int], make: Callable[[], bytes]) -> bytes:
        found = self._cache.get(key)
        if found is None:
            found = make()
            self._cached_bytes += len(found)
            if self._cached_bytes > self._cache_bytes_max:
                self._cache.clear()
                self._cached_bytes = len(found)
            self._cache[key] = found
        return found


def image_cells(patches: int) -> tuple[int, int]:
    """Columns and rows of 28 pixels of an image that weighs so many patches, or as near as an image
    of up to twice its height in width can."""
    patches = min(max(1, patches), IMAGE_PATCHES_MAX)
    cells = max(_CELLS_MIN, round(patches / IMAGE_PATCHES_PER_TOKEN))
    cells = min(cells, IMAGE_PATCHES_MAX // IMAGE_PATCHES_PER_TOKEN)
    square = math.isqrt(cells)
    best = (square, square)
    for columns in range(square, max(1, math.ceil(square * math.sqrt(_ASPECT_MAX))) + 1):
        rows = max(1, round(cells / columns))
        if abs(columns * rows - cells) < abs(best[0] * best[1] - cells):
            best = (columns, rows)
    return best


def _pixels(columns: int, rows: int) -> bytes:
    """The rest of a PNG after its palette: a chequerboard of cells, a bit a pixel."""
    width = columns * _CELL_PX
    bits = "".join(("0" if column % 2 else "1") * _CELL_PX for column in range(columns))
    padded = bits + "0" * (-width % 8)
    line = int(padded, 2).to_bytes(len(padded) // 8, "big")
    other = bytes(255 - byte for byte in line)
    pair = (b"\0" + line) * _CELL_PX + (b"\0" + other) * _CELL_PX
    data = (pair * (rows // 2 + 1))[: (len(line) + 1) * rows * _CELL_PX]
    return _chunk(b"IDAT", zlib.compress(data, 6)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _tones(samples: int) -> bytes:
    """The samples after the first ones: three tones whose common period is 10 ms."""
    period = b"".join(
        struct.pack(
            "<h",
            round(sum(4000 * math.sin(2 * math.pi * hertz * i / _RATE_HZ) for hertz in _TONE_HZ)),
        )
        for i in range(_SAMPLES_PER_FRAME)
    )
    size = 2 * (samples - _OWN_SAMPLES)
    return (period * (size // len(period) + 1))[:size]
