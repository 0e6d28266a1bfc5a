"""Whole answers: held until complete, or, where they are large, passed on as they come."""

from __future__ import annotations

import json
import re

import msgspec

from mileage.gateway.usage import Usage, UsageObject, usage_of_answer

__all__ = ["WholeAnswer"]

_HELD_BYTES_MAX = 1024 * 1024
_EDGE_BYTES = 64 * 1024
# Inside a JSON string the quotes would be escaped.
_usage_key = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_decode_object = json.JSONDecoder().raw_decode


class WholeAnswer:
    """An answer that is not a stream.

    It is held until it is complete, so that a replica that dies half-way can be replaced. One
    larger than `held_bytes_max` (1 MiB; embeddings, mostly) is passed on instead, so that memory
    stays bounded; its usage is then looked for in its first and last 64 KiB.
    """

    __slots__ = ("_edges", "_held", "_held_bytes", "_held_bytes_max", "passing")

    def __init__(self, held_bytes_max: int = _HELD_BYTES_MAX) -> None:
        self._held_bytes_max = held_bytes_max
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._edges = [b"", b""]
        self.passing = False
        """It is passed on."""

    def take(self, data: bytes) -> bytes:
        """Add a part; returns what is to be sent on now: nothing while it is held."""
        if self.passing:
            self._edges[1] = (self._edges[1] + data)[-_EDGE_BYTES:]
            return data
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes <= self._held_bytes_max:
            return b""
        self.passing = True
        held = self.body()
        self._held = []
        self._edges = [held[:_EDGE_BYTES], held[-_EDGE_BYTES:]]
        return held

    def body(self) -> bytes:
        """The answer, where it was held."""
        held = self._held
        return held[0] if len(held) == 1 else b"".join(held)

    def ends_well(self) -> bool:
        """It is a whole JSON value, or, where it is passed on, it ends like one.

        For answers without a length, whose end an engine that died half-way looks like.
        """
        if self.passing:
            return self._edges[1].rstrip()[-1:] in (b"}", b"]")
        try:
            msgspec.json.decode(self.body(), type=msgspec.Raw)
        except msgspec.DecodeError:
            return False
        return True

    def usage(self) -> Usage:
        """The token counts in it; all None where it tells none."""
        if not self.passing:
            return usage_of_answer(self.body())
        usage = Usage()
        for edge in self._edges:
            for found in _usage_key.finditer(edge):
                try:
                    counts, _ = _decode_object(edge[found.end() :].decode("utf-8", "replace"))
                    usage.take(msgspec.convert(counts, UsageObject))
                except (ValueError, RecursionError):  # ValidationError is a ValueError too
                    continue
        return usage
