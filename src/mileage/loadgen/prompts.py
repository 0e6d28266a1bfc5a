"""Prompts: texts of a given number of words, in which what is to be shared really is."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final

from mileage.loadgen.prompt_words import WORDS

__all__ = ["WORDS_MAX", "Prompts"]

WORDS_MAX: Final = 4_000_000
"""Of one prompt: some 28 MB."""
_CACHE_BYTES_MAX: Final = 32 * 1024 * 1024
_SMALL_WORDS: Final = hashlib.blake2b.MAX_DIGEST_SIZE // 2
_SPELLED: Final = tuple(word + b" " for word in WORDS) * (65_536 // len(WORDS))
"""The word for each number of 16 bits, all equally often."""
_word: Final = _SPELLED.__getitem__
_key: Final = struct.Struct("<Qq").pack
_ID_BITS: Final = (1 << 64) - 1


class Prompts:
    """Makes texts; equal seeds and arguments give equal ones, on every machine.

    A text begins with the words that all texts share, if any, goes on with those of its blocks, and
    ends with its owner's. The words of a block depend on its id and size alone, so two texts share
    those of their common leading blocks, and beyond them a word by chance: one time in 1,024. Texts
    of two seeds share nothing: another seed finds every cache cold.
    """

    def __init__(self, seed: int = 0, *, cache_bytes_max: int = _CACHE_BYTES_MAX) -> None:
        self._seed = seed & _ID_BITS
        self._cache: dict[tuple[int, int], bytes] = {}
        self._cached_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self._shared = b""
        self._shared_words = 0

    def text(
        self,
        words: int,
        owner: str,
        *,
        blocks: Sequence[int] = (),
        block_words: int = 0,
        shared_words: int = 0,
    ) -> bytes:
        """So many words (1..WORDS_MAX) in ASCII lower case, with one space between them.

        `blocks` are ids (64 bits, with a sign) of `block_words` words each: those that do not fit
        are left out, the last one that does may be cut. `shared_words` are the same in every text
        that has no blocks.
        """
        left = words = min(max(1, words), WORDS_MAX)
        parts: list[bytes] = []
        if blocks and block_words:
            whole, rest = divmod(words, block_words)
            parts = [self._block(block, block_words) for block in blocks[:whole]]
            left -= block_words * len(parts)
            if rest and len(blocks) > whole:
                cut = self._block(blocks[whole], block_words).split(b" ", rest)[:rest]
                parts.append(b" ".join(cut) + b" ")
                left = 0
        elif shared_words:
            parts.append(self._head(min(shared_words, words)))
            left -= min(shared_words, words)
        if left:
            parts.append(self._words(owner, left))
        return b"".join(parts)[:-1]

    def _block(self, block: int, words: int) -> bytes:
        cache, key = self._cache, (block, words)
        text = cache.get(key)
        if text is not None:
            return text
        if words <= _SMALL_WORDS:
            digest = hashlib.blake2b(_key(self._seed, block), digest_size=2 * words).digest()
            text = _spelled(digest, words)
        else:
            text = self._words(f"block {block}", words)
        self._cached_bytes += len(text)
        if self._cached_bytes > self._cache_bytes_max:
            cache.clear()
            self._cached_bytes = len(text)
        cache[key] = text
        return text

    def _head(self, words: int) -> bytes:
        """The first words of what all texts share."""
        if words > self._shared_words:
            self._shared, self._shared_words = self._words("shared", words), words
        if words == self._shared_words:
            return self._shared
        return self._words("shared", words)

    def _words(self, owner: str, count: int) -> bytes:
        """The owner's first words: SHAKE-128 gives as many numbers as are asked for, and the first
        ones are the same however many that is (FIPS 202)."""
        digest = hashlib.shake_128(f"{self._seed} {owner}".encode()).digest(2 * count)
        return _spelled(digest, count)


def _spelled(digest: bytes, count: int) -> bytes:
    return b"".join(map(_word, struct.unpack(f"<{count}H", digest)))
