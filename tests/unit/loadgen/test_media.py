"""Media: images and recordings that weigh what they should, and differ from each other."""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib

import pytest

from mileage.gateway.audio_header import audio_duration_s
from mileage.gateway.image_header import image_size
from mileage.loadgen.media import Media, image_cells
from mileage.policy.modality import AUDIO_FRAMES_MAX, audio_frames, image_patches


def chunks(png: bytes) -> dict[bytes, bytes]:
    """The chunks by name; each checksum must be right."""
    found = {}
    at = 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(name + data)
        found[name] = data
        at += 12 + length
    return found


def png(patches: int, owner: str = "a", media: Media | None = None) -> bytes:
    return base64.b64decode((media or Media()).png(patches, owner), validate=True)


def wav(frames: int, owner: str = "a") -> bytes:
    return base64.b64decode(Media().wav(frames, owner), validate=True)


@pytest.mark.parametrize("patches", [1, 16, 20, 64, 400, 1000, 4096, 4100, 12_345, 65_536, 10**6])
def test_an_image_weighs_what_it_should(patches: int) -> None:
    size = image_size(png(patches))
    assert size is not None
    wanted = min(max(patches, 16), 65_536)
    assert image_patches(*size) == pytest.approx(wanted, rel=0.02, abs=4)
    assert max(size) <= 2.2 * min(size)


@pytest.mark.parametrize("patches", range(16, 4000, 52))
def test_cells_are_as_many_as_asked_for_or_nearly_so(patches: int) -> None:
    columns, rows = image_cells(patches)
    assert abs(columns * rows - patches / 4) <= max(1.0, 0.03 * patches / 4)


def test_an_image_is_whole_and_valid() -> None:
    found = chunks(png(400))
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert (depth, colour, len(found[b"PLTE"])) == (1, 3, 6)
    assert len(zlib.decompress(found[b"IDAT"])) == (-(-width // 8) + 1) * height
    assert found[b"IEND"] == b""


def test_a_large_image_is_a_small_file() -> None:
    assert len(png(65_536)) < 40_000


def test_images_differ_and_those_of_one_owner_do_not() -> None:
    media = Media(1)
    assert png(64, "a", media) == png(64, "a", Media(1)) != png(64, "b", media)
    assert png(64, "a", media) != png(64, "a", Media(2))


@pytest.mark.parametrize("frames", [1, 7, 100, 3001])
def test_a_recording_lasts_as_long_as_it_should(frames: int) -> None:
    data = wav(frames)
    assert audio_frames(audio_duration_s(data[:4096], len(data))) == frames
    with wave.open(io.BytesIO(data)) as opened:
        assert (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (
            16_000,
            1,
            2,
        )
        assert opened.getnframes() == frames * 160 - 80
        assert len(opened.readframes(10**9)) == 2 * opened.getnframes()


def test_no_recording_is_longer_than_an_hour() -> None:
    assert len(Media().wav(10**9, "a")) == len(Media().wav(AUDIO_FRAMES_MAX, "a"))


def test_recordings_differ_by_owner() -> None:
    assert wav(50, "a") == wav(50, "a") != wav(50, "b")


def test_a_cache_that_is_full_changes_nothing() -> None:
    small, large = Media(cache_bytes_max=100), Media()
    for patches in (64, 400, 64):
        assert small.png(patches, "a") == large.png(patches, "a")
