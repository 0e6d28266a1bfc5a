"""AudioHeader: how long a recording lasts, from its first bytes and its size."""

from __future__ import annotations

__all__ = ["audio_duration_s"]

_BYTES_PER_S: dict[bytes, int] = {
    b"RIFF": 32_000,  # a WAV file whose format cannot be read: 16-bit mono at 16 kHz
    b"RF64": 32_000,
    b"fLaC": 20_000,  # the same, packed to some 60 %
    b"OggS": 4_000,  # Opus as used for speech
    b"\x1aE\xdf\xa3": 4_000,  # WebM, which holds Opus
}
_BYTES_PER_S_OTHER = 8_000
"""MP3 and AAC of speech: 64 kbit/s."""
_WAV_BYTES_PER_S = range(500, 20_000_001)
"""From speech at 4 kbit/s to eight channels of 32 bits at 384 kHz and more."""


def audio_duration_s(head: bytes, size_bytes: int) -> float:
    """Seconds that a recording of `size_bytes` lasts; `head` are its first bytes. Never raises.

    Exact for WAV (RIFF, RF64; also streamed, where the header's sizes are not filled in). Any other
    format is taken to have the bit rate that is usual for speech in it; at a higher one, as for
    music, the result is too long.
    """
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        found = _wav(head, size_bytes)
        if found is not None:
            return found
    return size_bytes / _BYTES_PER_S.get(head[:4], _BYTES_PER_S_OTHER)


def _wav(head: bytes, size_bytes: int) -> float | None:
    """Bytes of the data chunk by bytes per second; None where no format chunk comes before it."""
    at, bytes_per_s = 12, 0
    while at + 8 <= len(head):
        chunk, length = head[at : at + 4], int.from_bytes(head[at + 4 : at + 8], "little")
        at += 8
        if chunk == b"data":
            there = max(0, size_bytes - at)
            size_bytes = min(length, there) if length else there
            break
        if chunk == b"fmt ":
            bytes_per_s = int.from_bytes(head[at + 8 : at + 12], "little")
        at += length + length % 2
    return size_bytes / bytes_per_s if bytes_per_s in _WAV_BYTES_PER_S else None
