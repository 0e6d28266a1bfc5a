"""How long recordings last: exact for WAV, by the usual bit rate for others."""

from __future__ import annotations

import pytest

from mileage.gateway.audio_header import audio_duration_s
from tests.support.media_samples import wav

HALF = wav(0.5)


@pytest.mark.parametrize(
    ("data", "duration_s"),
    [
        pytest.param(wav(2.5), 2.5, id="WAV"),
        pytest.param(wav(2.5, rate_hz=44_100), 2.5, id="WAV of another rate"),
        pytest.param(wav(2.5, before=b"x" * 33), 2.5, id="WAV whose format comes later"),
        pytest.param(wav(2.5, streamed=True), 2.5, id="WAV that was streamed: no sizes in it"),
        pytest.param(wav(2.5).replace(b"RIFF", b"RF64"), 2.5, id="RF64"),
        pytest.param(wav(2.5) + bytes(32_000), 2.5, id="WAV with something behind its data"),
        pytest.param(b"ID3\x04" + bytes(79_996), 10.0, id="MP3, at 64 kbit/s"),
        pytest.param(b"OggS" + bytes(39_996), 10.0, id="Opus, at 32 kbit/s"),
        pytest.param(b"", 0.0, id="nothing"),
    ],
)
def test_the_duration_of_a_recording(data: bytes, duration_s: float) -> None:
    assert audio_duration_s(data[:3000], len(data)) == pytest.approx(duration_s)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(HALF[:12], id="no format"),
        pytest.param(HALF[:28] + bytes(4) + HALF[32:], id="no bytes in a second"),
        pytest.param(HALF[:28] + b"\xff" * 4 + HALF[32:], id="too many bytes in a second"),
        pytest.param(HALF[:28] + b"\x01\0\0\0" + HALF[32:], id="one byte in a second"),
    ],
)
def test_a_wav_whose_format_is_broken_is_taken_for_usual_speech(data: bytes) -> None:
    assert audio_duration_s(data, 320_000) == pytest.approx(10.0, rel=0.01)
