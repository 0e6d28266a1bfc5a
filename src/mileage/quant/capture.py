"""A capture: queries, keys and values of a model on calibration text, and its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from zipfile import BadZipFile

import msgspec
import numpy as np

from mileage.core.errors import ConfigError
from mileage.quant.formats import Values

__all__ = ["Capture", "CaptureFacts", "LayerCapture", "capture_bytes", "read_capture"]

FORMAT = 1


class CaptureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a capture comes from, so that nobody mixes two."""

    model: str
    """Name or path that the user gave."""

    model_sha256: str
    text_sha256: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    """Factor of the scores before the softmax, mostly 1 / sqrt(head_dim)."""

    window_tokens: tuple[int, ...]
    """Tokens of each window; attention does not cross from one to the next."""


class LayerCapture(msgspec.Struct, frozen=True, kw_only=True):
    """What attention of one layer saw, all windows one after the other."""

    q: Values
    """(tokens, heads, head_dim), after the positional rotation; so are the keys."""

    k: Values
    """(tokens, kv_heads, head_dim)."""

    v: Values


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A model's attention on calibration text."""

    facts: CaptureFacts
    layers: tuple[LayerCapture, ...]

    def windows(self, layer: int) -> Iterator[LayerCapture]:
        """The layer's windows, one by one."""
        whole, start = self.layers[layer], 0
        for tokens in self.facts.window_tokens:
            part = slice(start, start + tokens)
            yield LayerCapture(q=whole.q[part], k=whole.k[part], v=whole.v[part])
            start += tokens


def capture_bytes(capture: Capture) -> bytes:
    """The capture as an .npz file: exact, and the same bytes for the same capture."""
    arrays = {
        f"{name}{i}": getattr(layer, name)
        for i, layer in enumerate(capture.layers)
        for name in ("q", "k", "v")
    }
    document = {"format": FORMAT, **msgspec.to_builtins(capture.facts)}
    arrays["facts"] = np.frombuffer(json.dumps(document, sort_keys=True).encode(), dtype=np.uint8)
    buffer = BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_capture(content: bytes, *, key: str = "--capture", name: str = "the file") -> Capture:
    """The capture of a file's bytes; raises ConfigError where they are none."""
    try:
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            document = json.loads(arrays["facts"].tobytes())
            if document.pop("format", None) != FORMAT:
                raise ConfigError(key, name, f"a capture of format {FORMAT}")
            facts = msgspec.convert(document, CaptureFacts)
            layers = tuple(
                LayerCapture(q=arrays[f"q{i}"], k=arrays[f"k{i}"], v=arrays[f"v{i}"])
                for i in range(facts.layers)
            )
    except (ValueError, KeyError, EOFError, OSError, BadZipFile, msgspec.ValidationError):
        raise ConfigError(key, name, "a capture that mileage quant wrote") from None
    _check_shapes(facts, layers, key, name)
    return Capture(facts=facts, layers=layers)


def _check_shapes(
    facts: CaptureFacts, layers: tuple[LayerCapture, ...], key: str, name: str
) -> None:
    tokens = sum(facts.window_tokens)
    query = (tokens, facts.heads, facts.head_dim)
    stored = (tokens, facts.kv_heads, facts.head_dim)
    for i, layer in enumerate(layers):
        shapes = (layer.q.shape, layer.k.shape, layer.v.shape)
        if shapes != (query, stored, stored) or layer.q.dtype != np.float32:
            expected = f"layer {i} of shapes {query} and {stored}, as its facts say; has {shapes}"
            raise ConfigError(key, name, expected)
