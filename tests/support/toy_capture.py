"""A capture of a model of two layers, with random queries, keys and values."""

from __future__ import annotations

import numpy as np

from mileage.quant.capture import Capture, CaptureFacts, LayerCapture

__all__ = ["toy_capture"]

_HEADS, _KV_HEADS, _LAYERS = 4, 2, 2


def toy_capture(*, head_dim: int, window_tokens: tuple[int, ...], seed: int) -> Capture:
    """The same for the same arguments."""
    generator = np.random.default_rng(seed)
    tokens = sum(window_tokens)

    def values(heads: int) -> np.ndarray:
        return generator.standard_normal((tokens, heads, head_dim)).astype(np.float32)

    layers = tuple(
        LayerCapture(q=values(_HEADS), k=values(_KV_HEADS), v=values(_KV_HEADS))
        for _ in range(_LAYERS)
    )
    facts = CaptureFacts(
        model="toy",
        model_sha256="a" * 64,
        text_sha256="b" * 64,
        layers=_LAYERS,
        heads=_HEADS,
        kv_heads=_KV_HEADS,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        window_tokens=window_tokens,
    )
    return Capture(facts=facts, layers=layers)
