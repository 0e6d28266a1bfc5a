"""What each format does to each slot's attention: cheap figures that tell its formats apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from mileage.quant.attention_error import WindowAttention
from mileage.quant.capture import Capture, LayerCapture
from mileage.quant.formats import KvFormat, Side, Slot
from mileage.quant.quantised import quantised
from mileage.quant.ranges import Ranges, ranges_of
from mileage.quant.score_bound import score_bound

__all__ = ["Formats", "Progress", "SlotEffect", "effects"]

Formats = Mapping[Side, Sequence[KvFormat]]

Progress = Callable[[int, int], None]
"""Called with how many steps are done, and of how many."""


class SlotEffect(msgspec.Struct, frozen=True, kw_only=True):
    """One slot in one format: means over the capture's windows."""

    slot: Slot
    format: KvFormat
    relative_error: float
    """Norm of what storage adds over the norm of what is stored."""

    effect: float
    """Keys: half the variance of the score error under attention's weights; values: mean square of
    the output's error over that of the output. Both are of second order in the error, as KL is."""

    attention_kl: float | None = None
    """Of the weights, nats; keys only."""

    bound_ratio: float | None = None
    """Greatest real score error over its bound; keys only, None where nothing differs."""

    bound_violations: int = 0


def effects(
    capture: Capture, formats: Formats, progress: Progress | None = None
) -> tuple[SlotEffect, ...]:
    """Every format of each slot's side, layer by layer.

    Scales that are fixed beforehand are those of the capture itself.
    """
    found: list[SlotEffect] = []
    for layer in range(capture.facts.layers):
        windows = list(capture.windows(layer))
        attention = [WindowAttention(each, scale=capture.facts.scale) for each in windows]
        ranges = ranges_of([each.k for each in windows])
        keys, scale = Slot(layer, "k"), capture.facts.scale
        found += [_of_keys(keys, f, windows, attention, ranges, scale) for f in formats["k"]]
        ranges = ranges_of([each.v for each in windows])
        values = Slot(layer, "v")
        found += [_of_values(values, f, windows, attention, ranges) for f in formats["v"]]
        if progress is not None:
            progress(layer + 1, capture.facts.layers)
    return tuple(found)


def _of_keys(
    slot: Slot,
    kv_format: KvFormat,
    windows: Sequence[LayerCapture],
    attention: Sequence[WindowAttention],
    ranges: Ranges,
    scale: float,
) -> SlotEffect:
    stored = [quantised(each.k, kv_format, ranges) for each in windows]
    changes = [one.keys(k, kv_format.open_group) for one, k in zip(attention, stored, strict=True)]
    bounds = [
        score_bound(each.q, each.k, k, scale=scale) for each, k in zip(windows, stored, strict=True)
    ]
    return SlotEffect(
        slot=slot,
        format=kv_format,
        relative_error=_mean([each.relative_error for each in changes]),
        effect=_mean([each.kl_proxy for each in changes]),
        attention_kl=_mean([each.kl for each in changes]),
        bound_ratio=max(
            (b.largest_ratio for b in bounds if b.largest_ratio is not None), default=None
        ),
        bound_violations=sum(each.violations for each in bounds),
    )


def _of_values(
    slot: Slot,
    kv_format: KvFormat,
    windows: Sequence[LayerCapture],
    attention: Sequence[WindowAttention],
    ranges: Ranges,
) -> SlotEffect:
    changes = [
        one.values(quantised(each.v, kv_format, ranges), kv_format.open_group)
        for one, each in zip(attention, windows, strict=True)
    ]
    return SlotEffect(
        slot=slot,
        format=kv_format,
        relative_error=_mean([each.relative_error for each in changes]),
        effect=_mean([each.output_error for each in changes]),
    )


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures)
