"""What the search asks of a model: tokens, what attention saw, and the KL of a mix of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from mileage.measure.record_latency import Floats
from mileage.quant.capture import Capture
from mileage.quant.formats import KvFormat, Slot

__all__ = ["MeasuredModel", "Measurement", "Mix", "Window"]

Window = tuple[int, ...]
"""Token ids of one stretch of text, read at once."""

Mix = Mapping[Slot, KvFormat]
"""The format of each slot; those that are not named are stored as they are."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One window under a mix."""

    kl: Floats
    """KL of the next token's distribution from that without quantisation, nats, of each token."""

    loss: Floats
    """-log of the probability of each next token of the text, nats; one fewer than tokens."""


class MeasuredModel(Protocol):
    """A model whose keys and values can be stored in any mix of formats."""

    layers: int
    head_dim: int
    kv_heads: int

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        """The text in windows of that many tokens; what is left over is dropped."""
        ...

    def calibrate(self, windows: Sequence[Window]) -> None:
        """Fix the scales that have to be known beforehand on these windows."""
        ...

    def capture(self, windows: Sequence[Window]) -> Capture:
        """Queries, keys and values of all layers, after the positional rotation."""
        ...

    def measure(self, window: Window, mix: Mix) -> Measurement:
        """The window under the mix, against the window as it is."""
        ...
