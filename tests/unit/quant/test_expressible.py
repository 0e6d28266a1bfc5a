"""What engines can be told, on numbers made by hand: four layers, costs that are sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from mileage.quant.capture import Capture, CaptureFacts
from mileage.quant.effects import SlotEffect
from mileage.quant.expressible import ENGINE_FORMATS, Expressed, expressed
from mileage.quant.fitted_mix import fit_kl, layers_alone
from mileage.quant.formats import Slot, format_named
from mileage.quant.measured import Measurement, Mix, Window
from mileage.quant.search import Search, SearchData
from mileage.quant.sweep import SlotKl, slots_of

LAYERS = 4
FACTS = CaptureFacts(
    model="toy",
    model_sha256="a" * 64,
    text_sha256="b" * 64,
    layers=LAYERS,
    heads=4,
    kv_heads=2,
    head_dim=64,
    scale=0.125,
    window_tokens=(10,),
)
COST = {
    "f16": 0.0,
    "q8_0": 1e-4,
    "q5_1": 1e-3,
    "q5_0": 2e-3,
    "q4_1": 3e-3,
    "q4_0": 6e-3,
    "e4m3": 5e-4,
    "int8-token": 2e-4,
    "int4-token-g64": 8e-3,
    "int8-tensor": 4e-4,
}
"""Of a slot of keys in layer 0, nats; layer 1's are twice, and so on; values cost a tenth."""


def _kl(slot: Slot, name: str) -> float:
    return COST[name] * (slot.layer + 1) * (1.0 if slot.side == "k" else 0.1)


def _search(names: Sequence[str] = ENGINE_FORMATS) -> Search:
    effects = [
        SlotEffect(slot=slot, format=format_named(name), relative_error=0.1, effect=_kl(slot, name))
        for slot in slots_of(LAYERS)
        for name in names
    ]
    known = format_named("q8_0")
    measured = [
        SlotKl(slot=slot, format=known, kl=(_kl(slot, "q8_0"),)) for slot in slots_of(LAYERS)
    ]
    return Search(SearchData(facts=FACTS, effects=tuple(effects), measured=tuple(measured)))


def _by_engine(kl_max: float) -> Mapping[str, Expressed]:
    return {each.engine: each for each in expressed(_search(), kl_max)}


def test_each_engine_has_its_fewest_bits_within_the_budget() -> None:
    """All four layers together cost ten times the first."""
    found = _by_engine(1.15e-2)

    assert (found["llama.cpp"].k, found["llama.cpp"].v) == ("q5_1", "q5_1")
    assert found["llama.cpp"].kl == pytest.approx(1.1e-2)
    assert found["llama.cpp"].bits_per_value == 6.0
    assert found["llama.cpp"].flags == (
        *("--cache-type-k", "q5_1", "--cache-type-v", "q5_1"),
        *("--flash-attn", "on"),
    )
    assert found["vllm"].flags == ("--kv-cache-dtype", "fp8_e4m3")
    assert found["tensorrt-llm"].flags == ("kv_cache_config.dtype=fp8",)
    assert found["lmdeploy"].flags == ("--quant-policy", "8")


def test_keys_and_values_of_llama_cpp_are_chosen_apart() -> None:
    """q8_0 keys with q4_0 values, 6.5 bits: 1e-3 + 6e-3; q5_1 keys alone cost 1e-2."""
    assert (_by_engine(8e-3)["llama.cpp"].k, _by_engine(8e-3)["llama.cpp"].v) == ("q8_0", "q4_0")


def test_vllm_leaves_the_dearest_layers_as_they_are() -> None:
    """FP8 costs 5.5e-4 a layer times 1, 2, 3, 4; without the last two 1.65e-3 are left. INT8's
    2.2e-4 times 10 is too much; without the last, 1.32e-3 for fewer bits."""
    found = _by_engine(1.7e-3)["vllm"]

    assert found.flags == (
        *("--kv-cache-dtype", "int8_per_token_head"),
        *("--kv-cache-dtype-skip-layers", "3"),
    )
    assert found.kl == pytest.approx(1.32e-3)
    assert found.bits_per_value == (3 * 8.25 + 16.0) / 4


def test_where_no_type_is_within_the_budget_the_cache_stays() -> None:
    found = _by_engine(1e-6)

    assert {(each.k, each.v, each.bits_per_value) for each in found.values()} == {
        ("f16", "f16", 16.0)
    }
    assert found["tensorrt-llm"].flags == found["vllm"].flags == found["lmdeploy"].flags == ()
    assert found["lmdeploy"].note is not None


def test_types_that_were_not_looked_at_are_not_recommended() -> None:
    found = {each.engine: each for each in expressed(_search(("f16", "q8_0")), 1.0)}

    assert found["vllm"].flags == ()
    assert found["lmdeploy"].flags == ()
    assert found["llama.cpp"].k == "q8_0"


class _Dearer:
    """The whole costs so many times what its slots do together."""

    layers, head_dim, kv_heads = LAYERS, 64, 2

    def __init__(self, times: float) -> None:
        self._times = times

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        raise NotImplementedError

    def calibrate(self, windows: Sequence[Window]) -> None:
        raise NotImplementedError

    def capture(self, windows: Sequence[Window]) -> Capture:
        raise NotImplementedError

    def measure(self, window: Window, mix: Mix) -> Measurement:
        kl = self._times * sum(_kl(slot, f.name) for slot, f in mix.items())
        return Measurement(kl=np.array([kl]), loss=np.array([1.0]))


@pytest.mark.parametrize("times", [0.9, 1.0, 1.2, 3.0])
def test_a_mix_whose_whole_costs_more_is_chosen_anew(times: float) -> None:
    search = _search()
    said: list[str] = []

    found = fit_kl(search, _Dearer(times), [(1,), (2,)], 1e-2, say=said.append)

    assert found is not None
    assert found.kl == pytest.approx(times * found.choice.kl)
    assert found.kl <= 1e-2
    assert len(said) == (1 if times <= 1.0 else 2)
    assert "bits per value: KL" in said[-1]


def test_a_budget_that_nothing_meets_has_no_mix() -> None:
    search = _search([name for name in ENGINE_FORMATS if name != "f16"])

    assert fit_kl(search, _Dearer(1.0), [(1,)], 1e-4) is None


def test_layers_alone_are_of_both_sides() -> None:
    search = _search()
    choice = search.within_kl(1e-2)
    assert choice is not None
    mix = search.mix(choice)

    found = layers_alone(_Dearer(1.0), [(1,), (2,)], mix)

    assert sum(found) == pytest.approx(choice.kl)
    assert found[1] == pytest.approx(
        sum(_kl(slot, f.name) for slot, f in mix.items() if slot.layer == 1)
    )
