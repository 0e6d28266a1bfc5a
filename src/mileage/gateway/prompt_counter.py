"""PromptCounter: how many tokens a prompt's text has, by its model's tokenizer."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from typing import Any, Final

import msgspec

from mileage.core.request import Endpoint
from mileage.gateway.bodies import BYTES_PER_TOKEN
from mileage.gateway.prompt_pieces import PromptPieces
from mileage.gateway.tokenizer_file import BatchTokenizer

__all__ = ["PromptCounter"]

_KEPT_MAX: Final = 16_384
_KEPT_CHARS_MIN: Final = 256
"""Shorter texts are counted in less time than they are found."""
_DIGEST_BYTES: Final = 16
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class PromptCounter:
    """Counts piece by piece: a message is one, so of a conversation's next turn only what is new.

    What a chat template puts round the pieces is not counted. Of each piece a digest is kept, with
    a key of this process, and no text. What is known already is counted sooner, which can be
    measured: so those whose caches are apart find nothing here of one another's either. For several
    threads at once: the tokenizer leaves the interpreter to others while it works.
    """

    def __init__(self, tokenizer: BatchTokenizer, *, kept_max: int = _KEPT_MAX) -> None:
        self._tokenizer, self._kept_max = tokenizer, kept_max
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        self._key = os.urandom(_DIGEST_BYTES)
        self._lock = threading.Lock()

    def count(self, endpoint: Endpoint, body: bytes, apart: str | None = None) -> int | None:
        """Tokens of the prompt's text and tools, at least 1; None where the prompt is no text.

        `apart`: the tenant, where it shares nothing with others; a `cache_salt` of the client's own
        parts what is kept further.

        A prompt of token ids has as many as there are; of files and signatures, which no tokenizer
        reads, four bytes are a token, as of what is estimated. Raises msgspec.DecodeError or
        ValueError for a body, or a text, that cannot be read.
        """
        fields = _decode(body)
        prompt = {"completions": "prompt", "embeddings": "input"}.get(endpoint)
        if prompt is not None and (ids := _token_ids(fields.get(prompt))) is not None:
            return max(1, ids)
        key = self._key_of(apart, fields.get("cache_salt"))
        pieces = PromptPieces(endpoint, fields)
        if not pieces.texts and not pieces.opaque_bytes:
            return None
        return max(1, self._count(pieces.texts, key) + pieces.opaque_bytes // BYTES_PER_TOKEN)

    def _count(self, pieces: list[str], key: bytes) -> int:
        found, new, digests = 0, [], []
        for piece in pieces:
            digest = _digest(piece, key) if len(piece) >= _KEPT_CHARS_MIN else None
            known = None if digest is None else self._known(digest)
            if known is not None:
                found += known
            elif piece:
                new.append(piece)
                digests.append(digest)
        if not new:
            return found
        encoded = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        counts = [len(each) for each in encoded]
        with self._lock:
            for digest, count in zip(digests, counts, strict=True):
                if digest is not None:
                    self._kept[digest] = count
            while len(self._kept) > self._kept_max:
                self._kept.popitem(last=False)
        return found + sum(counts)

    def _known(self, digest: bytes) -> int | None:
        with self._lock:
            count = self._kept.get(digest)
            if count is not None:
                self._kept.move_to_end(digest)
        return count

    def _key_of(self, apart: str | None, salt: object) -> bytes:
        """The key of the digests that this tenant's prompts, under this salt, may find."""
        if apart is None and salt is None:
            return self._key
        return _digest(repr((apart, salt)), self._key)


def _digest(text: str, key: bytes) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=key).digest()


def _token_ids(prompt: object) -> int | None:
    """How many ids a prompt is, or several are; None for one that has anything else in it."""
    if not isinstance(prompt, list) or not prompt:
        return None
    if _are_ids(prompt):
        return len(prompt)
    if all(isinstance(ids, list) and _are_ids(ids) for ids in prompt):
        return sum(map(len, prompt))
    return None


def _are_ids(items: list[object]) -> bool:
    return set(map(type, items)) <= {int}
