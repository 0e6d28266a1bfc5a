"""A mix on held-out text: figures by hand, on a model that is a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mileage.quant.capture import Capture
from mileage.quant.effects import Formats
from mileage.quant.formats import Slot, format_named
from mileage.quant.judged import judge, summary
from mileage.quant.measured import Measurement, Mix, Window
from mileage.quant.sweep import mix_of, single_slots, slots_of
from mileage.quant.uniform import pairs_within, uniform_mix

FORMATS = {name: format_named(name) for name in ("int4-token-g32", "q8_0", "q5_1")}
COST = {"int4-token-g32": 4.0, "q8_0": 1.0, "q5_1": 2.0}


class _Table:
    """Each slot costs its format's number times its layer, more in later windows."""

    layers, head_dim, kv_heads = 2, 64, 1

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        raise NotImplementedError

    def calibrate(self, windows: Sequence[Window]) -> None:
        raise NotImplementedError

    def capture(self, windows: Sequence[Window]) -> Capture:
        raise NotImplementedError

    def measure(self, window: Window, mix: Mix) -> Measurement:
        cost = sum(COST[f.name] * (slot.layer + 1) for slot, f in mix.items())
        kl = cost * window[0] * np.array([0.5, 1.5])
        return Measurement(kl=kl, loss=np.array([2.0 + cost / 10.0]))


def test_figures_are_those_of_all_windows() -> None:
    mix = {Slot(0, "k"): FORMATS["q8_0"]}
    seen: list[tuple[int, int]] = []

    found = judge(
        _Table(), [(1,), (2,), (6,)], mix, progress=lambda done, of: seen.append((done, of))
    )

    assert found.windows == (1.0, 2.0, 6.0)
    assert found.mean == 3.0
    assert 1.0 <= found.ci95[0] < 3.0 < found.ci95[1] <= 6.0
    assert 8.5 < found.p99 < 9.0
    assert found.perplexity_ratio == pytest.approx(np.exp(0.1))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_same_seed_gives_the_same_interval() -> None:
    mix = {Slot(0, "k"): FORMATS["q8_0"]}
    windows = [(i,) for i in range(1, 9)]

    assert judge(_Table(), windows, mix, seed=3) == judge(_Table(), windows, mix, seed=3)
    assert judge(_Table(), windows, mix, seed=3) != judge(_Table(), windows, mix, seed=4)


def test_no_text_has_no_figures() -> None:
    with pytest.raises(ValueError, match="at least one window"):
        summary([], [])


def test_each_slot_is_measured_alone_on_every_window() -> None:
    formats: Formats = {
        "k": (FORMATS["q8_0"], FORMATS["q5_1"]),
        "v": (FORMATS["q5_1"],),
    }
    seen: list[int] = []

    found = single_slots(
        _Table(), [(1,), (3,)], formats, lambda done, of: seen.append(done * 100 + of)
    )

    assert [(each.slot, each.format.name, each.kl, each.mean) for each in found] == [
        (Slot(0, "k"), "q8_0", (1.0, 3.0), 2.0),
        (Slot(0, "k"), "q5_1", (2.0, 6.0), 4.0),
        (Slot(0, "v"), "q5_1", (2.0, 6.0), 4.0),
        (Slot(1, "k"), "q8_0", (2.0, 6.0), 4.0),
        (Slot(1, "k"), "q5_1", (4.0, 12.0), 8.0),
        (Slot(1, "v"), "q5_1", (4.0, 12.0), 8.0),
    ]
    assert seen == [100 * done + 12 for done in range(1, 13)]


def test_pairs_come_best_first_and_within_the_bits() -> None:
    kl = {
        slot: {name: (3.0 if slot.side == "k" else 1.0) * cost for name, cost in COST.items()}
        for slot in slots_of(2)
    }

    found = pairs_within(kl, FORMATS, head_dim=64, bits_max=7.25)

    assert [(p.k, p.v, p.bits_per_value, p.kl) for p in found] == [
        ("q8_0", "q5_1", 7.25, 10.0),
        ("q8_0", "int4-token-g32", 6.75, 14.0),
        ("q5_1", "q8_0", 7.25, 14.0),
        ("q5_1", "q5_1", 6.0, 16.0),
        ("q5_1", "int4-token-g32", 5.5, 20.0),
        ("int4-token-g32", "q8_0", 6.75, 26.0),
        ("int4-token-g32", "q5_1", 5.5, 28.0),
        ("int4-token-g32", "int4-token-g32", 5.0, 32.0),
    ]
    assert not pairs_within(kl, FORMATS, head_dim=64, bits_max=4.9)


def test_a_format_that_a_slot_lacks_is_in_no_pair() -> None:
    kl = {Slot(0, "k"): {"q8_0": 1.0, "q5_1": 2.0}, Slot(0, "v"): {"q8_0": 1.0}}
    kl |= {Slot(1, "k"): {"q8_0": 1.0}, Slot(1, "v"): {"q8_0": 1.0}}

    assert [(p.k, p.v) for p in pairs_within(kl, FORMATS, head_dim=64, bits_max=16)] == [
        ("q8_0", "q8_0")
    ]


def test_mixes_by_pair_and_by_name() -> None:
    slots = slots_of(1)

    pair = uniform_mix(slots, FORMATS["q8_0"], FORMATS["q5_1"])

    assert pair == mix_of(slots, ["q8_0", "q5_1"], FORMATS)
    assert {slot.side: f.name for slot, f in pair.items()} == {"k": "q8_0", "v": "q5_1"}
