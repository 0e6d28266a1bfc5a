"""The search: from a capture and a few measurements to the mix for so many bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mileage.quant.allocate import Choice, Frontier, frontier
from mileage.quant.capture import Capture, CaptureFacts
from mileage.quant.effects import Formats, Progress, SlotEffect, effects
from mileage.quant.estimate import Table, estimated, table
from mileage.quant.formats import KvFormat, Slot
from mileage.quant.measured import MeasuredModel, Mix, Window
from mileage.quant.sweep import SlotKl, mix_of, single_slots
from mileage.quant.uniform import Pair, pairs_within

__all__ = ["Search", "SearchData", "look"]


class SearchData(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found out about a model: enough to choose anew for other budgets."""

    facts: CaptureFacts
    """Of the capture: the model, and the text that it read."""

    effects: tuple[SlotEffect, ...]
    measured: tuple[SlotKl, ...]


def look(
    model: MeasuredModel,
    capture: Capture,
    windows: Sequence[Window],
    *,
    formats: Formats,
    anchors: Formats,
    progress: Progress | None = None,
) -> SearchData:
    """Effects of all formats on the capture, and the KL of the anchors, slot by slot, on `windows`.

    The anchors are among the formats.
    """
    return SearchData(
        facts=capture.facts,
        effects=effects(capture, formats),
        measured=single_slots(model, windows, anchors, progress),
    )


class Search:
    """Chooses from the data."""

    def __init__(self, data: SearchData) -> None:
        """Raises ValueError for data without a measurement in some slot."""
        self._formats: Mapping[str, KvFormat] = {e.format.name: e.format for e in data.effects}
        self._kl: Table = estimated(data.effects, data.measured)
        self._head_dim = data.facts.head_dim
        self._width = data.facts.head_dim * data.facts.kv_heads
        self.slots, options = table(
            self._kl, self._formats, head_dim=self._head_dim, kv_heads=data.facts.kv_heads
        )
        self.frontier: Frontier = frontier(options)

    @property
    def bits_least(self) -> float:
        """Per value, of the choice with the fewest bits."""
        return float(self.frontier.bits[0]) / self._values

    @property
    def kl_least(self) -> float:
        """The least KL that any choice reaches."""
        return float(self.frontier.kl[-1])

    def within_bits(self, bits_per_value: float) -> Choice | None:
        """The least KL for so many bits per value, scales with them; None for too few."""
        # A choice of exactly so many bits is within them, whatever rounding says.
        return self.frontier.within_bits(bits_per_value * self._values + 1e-6)

    def within_kl(self, kl_max: float) -> Choice | None:
        """The fewest bits for a KL of at most that, nats per token; None where none is."""
        return self.frontier.within_kl(kl_max)

    def bits_per_value(self, choice: Choice) -> float:
        """Mean over all keys and values."""
        return choice.bits / self._values

    def mix(self, choice: Choice) -> Mix:
        """The formats of a choice, slot by slot."""
        return mix_of(self.slots, [option.name for option in choice.options], self._formats)

    def pairs(self, bits_per_value: float) -> tuple[Pair, ...]:
        """One format for all keys, one for all values: the best first."""
        return pairs_within(
            self._kl, self._formats, head_dim=self._head_dim, bits_max=bits_per_value
        )

    def kl(self, slot: Slot, name: str) -> float | None:
        """Estimated for one slot in one format; None for one that was not looked at."""
        return self._kl[slot].get(name)

    def format_bits(self, name: str) -> float:
        """Of one value in that format, its part of the scales with it."""
        return self._formats[name].bits_per_value(self._head_dim)

    @property
    def _values(self) -> int:
        """Of one token, keys and values of all layers."""
        return self._width * len(self.slots)
