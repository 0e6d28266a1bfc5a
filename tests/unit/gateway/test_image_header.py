"""Sizes of images: read from real headers, and never from what is none."""

from __future__ import annotations

import pytest

from mileage.gateway.image_header import image_size
from tests.support.media_samples import gif, jpeg, png, webp

PREVIEW = jpeg(160, 120)


@pytest.mark.parametrize(
    ("head", "size"),
    [
        pytest.param(png(17, 9), (17, 9), id="PNG"),
        pytest.param(gif(300, 65535), (300, 65535), id="GIF"),
        pytest.param(webp(16384, 3), (16384, 3), id="WebP, extended"),
        pytest.param(webp(16384, 3, chunk=b"VP8L"), (16384, 3), id="WebP, lossless"),
        pytest.param(webp(16383, 3, chunk=b"VP8 "), (16383, 3), id="WebP, lossy"),
        pytest.param(jpeg(4032, 3024), (4032, 3024), id="JPEG"),
        pytest.param(
            jpeg(4032, 3024, before=(b"Exif" + PREVIEW, bytes(65_000))),
            (4032, 3024),
            id="JPEG with a preview, which is another JPEG, and a profile",
        ),
        pytest.param(
            b"\xff\xd8" + b"\xff" * 9 + jpeg(40, 30)[2:], (40, 30), id="JPEG with fill bytes"
        ),
        pytest.param(
            b"\xff\xd8\xff\x01" + jpeg(40, 30)[2:], (40, 30), id="JPEG with a marker alone"
        ),
    ],
)
def test_the_size_is_in_the_header(head: bytes, size: tuple[int, int]) -> None:
    assert image_size(head) == size


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<svg width='10' height='10'/>", id="another format"),
        pytest.param(png(0, 9, noise=False), id="PNG without a width"),
        pytest.param(png(17, 9).replace(b"IHDR", b"CgBI"), id="PNG that begins with another chunk"),
        pytest.param(gif(0, 0), id="GIF without a size"),
        pytest.param(webp(4, 4, chunk=b"ANIM"), id="WebP that begins with another chunk"),
        pytest.param(webp(4, 4, chunk=b"VP8L").replace(b"\x2f", b"\x30"), id="broken VP8L"),
        pytest.param(webp(4, 4, chunk=b"VP8 ").replace(b"\x9d\x01\x2a", b"abc"), id="broken VP8"),
        pytest.param(jpeg(0, 3024), id="JPEG without a width"),
        pytest.param(b"\xff\xd8\xff\xda" + jpeg(4, 4)[2:], id="JPEG whose scan comes first"),
        pytest.param(b"\xff\xd8\xff\xd9" + jpeg(4, 4)[2:], id="JPEG that ends before its frame"),
        pytest.param(b"\xff\xd8\xff\xe0\x00\x02" + bytes(20), id="JPEG with bytes between"),
        pytest.param(b"\xff\xd8" + b"\xff" * 100_000, id="JPEG of fill bytes"),
        pytest.param(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 9999, id="JPEG of endless segments"),
    ],
)
def test_no_size_is_none(head: bytes) -> None:
    assert image_size(head) is None


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(png(17, 9), id="PNG"),
        pytest.param(gif(17, 9), id="GIF"),
        pytest.param(webp(17, 9), id="WebP, extended"),
        pytest.param(webp(17, 9, chunk=b"VP8L"), id="WebP, lossless"),
        pytest.param(webp(17, 9, chunk=b"VP8 "), id="WebP, lossy"),
        pytest.param(jpeg(17, 9, before=(b"x" * 20,)), id="JPEG"),
    ],
)
def test_a_header_cut_anywhere_says_its_size_or_nothing(image: bytes) -> None:
    sizes = [image_size(image[:end]) for end in range(len(image) + 1)]
    first = sizes.index((17, 9))
    assert set(sizes[:first]) == {None}
    assert set(sizes[first:]) == {(17, 9)}
