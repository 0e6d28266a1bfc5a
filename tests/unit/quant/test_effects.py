"""Effects of a capture, and what a format costs that was not measured."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from mileage.quant.attention_error import WindowAttention
from mileage.quant.capture import Capture
from mileage.quant.effects import Formats, SlotEffect, effects
from mileage.quant.estimate import estimated, family_of, table
from mileage.quant.formats import KvFormat, Slot, format_named
from mileage.quant.quantised import quantised
from mileage.quant.sweep import SlotKl, slots_of
from tests.support.toy_capture import toy_capture

NAMES = ("int4-token-g32", "int5-token-g32", "int4-channel-g32", "int8-channel")
FORMATS = {name: format_named(name) for name in NAMES}
BOTH: Formats = {"k": tuple(FORMATS.values()), "v": tuple(FORMATS.values())}


def _capture() -> Capture:
    return toy_capture(head_dim=32, window_tokens=(40, 70), seed=6)


FACTS = _capture().facts


def test_every_slot_has_the_mean_of_its_windows() -> None:
    capture, seen = _capture(), []

    found = effects(capture, BOTH, lambda done, of: seen.append((done, of)))

    assert [(each.slot, each.format.name) for each in found] == [
        (slot, name) for slot in slots_of(2) for name in NAMES
    ]
    assert seen == [(1, 2), (2, 2)]
    windows = list(capture.windows(1))
    form = FORMATS["int4-channel-g32"]
    alone = [
        WindowAttention(w, scale=FACTS.scale).keys(quantised(w.k, form), form.open_group)
        for w in windows
    ]
    one = next(e for e in found if (e.slot, e.format) == (Slot(1, "k"), form))
    assert one.effect == pytest.approx(np.mean([w.kl_proxy for w in alone]))
    assert one.attention_kl == pytest.approx(np.mean([w.kl for w in alone]))
    assert one.relative_error == pytest.approx(np.mean([w.relative_error for w in alone]))


def test_bounds_are_of_keys_alone() -> None:
    found = effects(_capture(), BOTH)

    assert {each.bound_violations for each in found} == {0}
    assert {each.bound_ratio is None for each in found if each.slot.side == "k"} == {False}
    assert {each.bound_ratio is None for each in found if each.slot.side == "v"} == {True}
    assert {each.attention_kl is None for each in found if each.slot.side == "v"} == {True}


def _effect(name: str, effect: float, layer: int = 0) -> SlotEffect:
    return SlotEffect(
        slot=Slot(layer, "v"), format=FORMATS[name], relative_error=0.1, effect=effect
    )


def _measured(name: str, *kl: float, layer: int = 0) -> SlotKl:
    return SlotKl(slot=Slot(layer, "v"), format=FORMATS[name], kl=kl)


EFFECTS = (
    _effect("int4-token-g32", 0.04),
    _effect("int5-token-g32", 0.01),
    _effect("int4-channel-g32", 0.02),
    _effect("int8-channel", 0.0001),
)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        pytest.param(
            [_measured("int4-token-g32", 0.1, 0.3), _measured("int4-channel-g32", 0.02)],
            [0.2, 0.05, 0.02, 0.0001],
            id="each family has its factor, of the windows' mean",
        ),
        pytest.param(
            [_measured("int4-token-g32", 0.2)],
            [0.2, 0.05, 0.1, 0.0005],
            id="a family without measurements takes the other's",
        ),
        pytest.param(
            [
                _measured("int4-token-g32", 0.08),
                _measured("int5-token-g32", 0.08),
                _measured("int8-channel", 0.0),
            ],
            [0.16, 0.04, 0.08, 0.0004],
            id="the factor is the geometric mean, and a KL of 0 says nothing",
        ),
    ],
)
def test_a_format_costs_its_effect_times_the_slot_s_factor(
    measured: list[SlotKl], expected: list[float]
) -> None:
    found = estimated(EFFECTS, measured)

    assert list(found[Slot(0, "v")].values()) == pytest.approx(expected)


def test_a_slot_of_which_nothing_was_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured of Slot"):
        estimated((*EFFECTS, _effect("int4-token-g32", 0.1, layer=1)), [_measured(NAMES[0], 0.1)])


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("int4-token-g32", "token"),
        ("q8_0", "token"),
        ("e4m3", "token"),
        ("int8-channel", "channel"),
        ("int8-head", "channel"),
        ("int3-channel-g64", "channel"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert family_of(format_named(name)) == family


def test_options_count_the_bits_of_all_heads_and_never_too_few() -> None:
    odd: KvFormat = msgspec.structs.replace(FORMATS["int4-channel-g32"], name="odd", group=48)
    kl = {Slot(0, "v"): {"int4-token-g32": 0.2, "odd": 0.1}}

    slots, options = table(kl, {**FORMATS, "odd": odd}, head_dim=32, kv_heads=2)

    assert slots == (Slot(0, "v"),)
    assert [(o.name, o.bits, o.kl) for o in options[0]] == [
        ("int4-token-g32", 5 * 64, 0.2),
        ("odd", 299, 0.1),  # (4 + 32 / 48) * 64 = 298.7
    ]
