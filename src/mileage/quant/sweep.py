"""Measures what each slot costs alone in each format: the numbers that the allocation adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mileage.quant.effects import Formats, Progress
from mileage.quant.formats import KvFormat, Slot
from mileage.quant.measured import MeasuredModel, Mix, Window

__all__ = ["SlotKl", "mix_of", "single_slots", "slots_of"]


class SlotKl(msgspec.Struct, frozen=True, kw_only=True):
    """One slot alone in one format."""

    slot: Slot
    format: KvFormat
    kl: tuple[float, ...]
    """Mean over the tokens of each window, nats."""

    @property
    def mean(self) -> float:
        """Over all windows, which are of one length."""
        return sum(self.kl) / len(self.kl)


def slots_of(layers: int) -> tuple[Slot, ...]:
    """Keys and values of each layer, from the first on."""
    return tuple(slot for i in range(layers) for slot in (Slot(i, "k"), Slot(i, "v")))


def single_slots(
    model: MeasuredModel,
    windows: Sequence[Window],
    formats: Formats,
    progress: Progress | None = None,
) -> tuple[SlotKl, ...]:
    """Each slot alone in each format of its side, on all windows.

    All of one window comes before the next, so that a model keeps one reference at a time.
    """
    wanted = [(slot, f) for slot in slots_of(model.layers) for f in formats[slot.side]]
    found: list[list[float]] = [[] for _ in wanted]
    for i, window in enumerate(windows):
        for j, (slot, kv_format) in enumerate(wanted):
            found[j].append(float(model.measure(window, {slot: kv_format}).kl.mean()))
            if progress is not None:
                progress(i * len(wanted) + j + 1, len(windows) * len(wanted))
    return tuple(
        SlotKl(slot=slot, format=kv_format, kl=tuple(kl))
        for (slot, kv_format), kl in zip(wanted, found, strict=True)
    )


def mix_of(slots: Sequence[Slot], names: Sequence[str], known: Mapping[str, KvFormat]) -> Mix:
    """The mix that gives each slot the format of that name."""
    return {slot: known[name] for slot, name in zip(slots, names, strict=True)}
