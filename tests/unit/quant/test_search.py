"""The search from a capture to a mix, on a model whose KL is known."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from mileage.core.errors import ConfigError
from mileage.quant.capture import Capture, CaptureFacts, LayerCapture
from mileage.quant.effects import Formats, effects
from mileage.quant.formats import Slot, Values, format_named
from mileage.quant.measured import Measurement, Mix, Window
from mileage.quant.offered import ANCHORS, IDEAL, LLAMA_CPP, fitting
from mileage.quant.search import Search, SearchData, look

WEIGHTS = {Slot(0, "k"): 1.0, Slot(0, "v"): 8.0, Slot(1, "k"): 0.01, Slot(1, "v"): 0.5}
NAMES = ("int4-channel-g32", "int5-channel-g32", "int6-channel-g32", "q8_0")
FORMATS: Formats = {side: [format_named(n) for n in NAMES] for side in ("k", "v")}
ANCHOR: Formats = {side: [format_named("int4-channel-g32")] for side in ("k", "v")}


class _Model:
    """A slot's KL is the format's effect times the slot's weight: what the search assumes."""

    layers, head_dim, kv_heads = 2, 32, 2

    def __init__(self) -> None:
        generator = np.random.default_rng(8)

        def values(heads: int) -> Values:
            return generator.standard_normal((96, heads, 32)).astype(np.float32)

        facts = CaptureFacts(
            model="toy",
            model_sha256="a" * 64,
            text_sha256="b" * 64,
            layers=2,
            heads=2,
            kv_heads=2,
            head_dim=32,
            scale=32**-0.5,
            window_tokens=(96,),
        )
        layers = tuple(LayerCapture(q=values(2), k=values(2), v=values(2)) for _ in range(2))
        self.seen = Capture(facts=facts, layers=layers)
        self.effects = {(e.slot, e.format.name): e.effect for e in effects(self.seen, FORMATS)}

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        raise NotImplementedError

    def calibrate(self, windows: Sequence[Window]) -> None:
        raise NotImplementedError

    def capture(self, windows: Sequence[Window]) -> Capture:
        return self.seen

    def measure(self, window: Window, mix: Mix) -> Measurement:
        kl = sum(WEIGHTS[slot] * self.effects[slot, f.name] for slot, f in mix.items())
        return Measurement(kl=np.array([kl, kl]), loss=np.array([1.0]))


def _data() -> tuple[_Model, SearchData]:
    model = _Model()
    windows = [(1, 2)]
    data = look(model, model.capture(windows), windows, formats=FORMATS, anchors=ANCHOR)
    return model, data


def test_the_mix_is_the_best_of_the_true_ones_and_better_than_any_pair() -> None:
    model, data = _data()
    search = Search(data)

    choice = search.within_bits(6.0)

    assert choice is not None
    assert search.bits_per_value(choice) <= 6.0
    mix = search.mix(choice)
    assert float(model.measure((1, 2), mix).kl.mean()) == pytest.approx(choice.kl)
    assert choice.kl < search.pairs(6.0)[0].kl
    bits = {slot: f.bits_per_value(32) for slot, f in mix.items()}
    assert bits[Slot(0, "k")] > bits[Slot(1, "k")]
    assert bits[Slot(0, "v")] > bits[Slot(1, "v")]


def test_formats_that_were_not_measured_are_estimated() -> None:
    model, data = _data()
    search = Search(data)

    for slot, weight in WEIGHTS.items():
        for name in NAMES:
            assert search.kl(slot, name) == pytest.approx(weight * model.effects[slot, name])


def test_a_budget_of_kl_takes_the_fewest_bits() -> None:
    _, data = _data()
    search = Search(data)
    budget = search.pairs(16.0)[-1].kl / 4.0

    choice = search.within_kl(budget)

    assert choice is not None
    assert choice.kl <= budget
    fewer = search.within_bits(search.bits_per_value(choice) - 0.01)
    assert fewer is None or fewer.kl > budget


def test_budgets_out_of_reach_are_told_with_the_least_that_is() -> None:
    _, data = _data()
    search = Search(data)

    assert search.within_bits(search.bits_least - 0.1) is None
    assert search.within_bits(search.bits_least) is not None
    assert search.bits_least == 5.0
    assert search.within_kl(0.99 * search.kl_least) is None
    assert search.within_kl(search.kl_least) is not None


def test_data_is_kept_and_read_back() -> None:
    _, data = _data()

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(data), type=SearchData) == data


@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_formats_whose_groups_do_not_divide_the_head_are_left_out(head_dim: int) -> None:
    found = {each.name for each in fitting(IDEAL, head_dim)}

    assert found >= {"f16", "int8-token", "int4-channel-g32"}
    assert ("q8_0" in found) == (head_dim != 80)
    assert ("int4-token-g64+rot" in found) == (head_dim != 80)


def test_where_no_format_fits_it_is_said() -> None:
    with pytest.raises(ConfigError, match="whose groups divide heads of 80"):
        fitting(("q8_0", "q4_0"), 80, key="--formats")


def test_anchors_are_among_what_is_tried() -> None:
    assert {name for names in ANCHORS.values() for name in names} <= set(IDEAL)
    assert set(LLAMA_CPP) <= set(IDEAL)
    assert len(set(IDEAL)) == len(IDEAL)
