"""The mix within a KL budget: chosen by sums, then held against what it costs as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mileage.quant.allocate import Choice
from mileage.quant.measured import MeasuredModel, Mix, Window
from mileage.quant.search import Search

__all__ = ["FittedMix", "fit_kl", "layers_alone"]

_TRIES = 4
_SAFETY = 0.9
"""Of what would be enough if the whole cost what its slots do: text differs."""


class FittedMix(msgspec.Struct, frozen=True, kw_only=True):
    """A choice, and its KL as a whole on the text that it was fitted on."""

    choice: Choice
    kl: float


def fit_kl(
    search: Search,
    model: MeasuredModel,
    windows: Sequence[Window],
    kl_max: float,
    *,
    say: Callable[[str], None] | None = None,
) -> FittedMix | None:
    """The fewest bits whose KL as a whole is within the budget on `windows`.

    Slots' KLs add up to the whole's within some percent, so that a choice that costs too much is
    made anew for as much less. None where nothing is within the budget.
    """
    target = kl_max
    for _ in range(_TRIES):
        choice = search.within_kl(target)
        if choice is None:
            return None
        kl = _whole(model, windows, search.mix(choice))
        if say is not None:
            bits = search.bits_per_value(choice)
            say(f"{bits:.2f} bits per value: KL {kl:.2e} on the calibration text")
        if kl <= kl_max:
            return FittedMix(choice=choice, kl=kl)
        target *= _SAFETY * kl_max / kl
    return None


def layers_alone(model: MeasuredModel, windows: Sequence[Window], mix: Mix) -> tuple[float, ...]:
    """KL of each layer's keys and values alone, means over the windows, nats per token."""
    sums = [0.0] * model.layers
    for window in windows:
        for layer in range(model.layers):
            own = {slot: form for slot, form in mix.items() if slot.layer == layer}
            sums[layer] += float(model.measure(window, own).kl.mean())
    return tuple(each / len(windows) for each in sums)


def _whole(model: MeasuredModel, windows: Sequence[Window], mix: Mix) -> float:
    kls = [float(model.measure(window, mix).kl.mean()) for window in windows]
    return sum(kls) / len(kls)
