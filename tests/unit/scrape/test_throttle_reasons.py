"""The mask of reasons for which a GPU clocks down: its bits by name."""

from __future__ import annotations

import pytest

from mileage.scrape.throttle_reasons import reasons_of


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0.0, frozenset()),
        (1.0, {"gpu_idle"}),
        (0x4 | 0x20, {"sw_power_cap", "sw_thermal"}),
        (0x400, {"bit_10"}),
        (None, None),
        (9.2e18, None),
        (1.5, None),
        (-1.0, None),
    ],
)
def test_reasons_of_a_mask(mask: float | None, reasons: frozenset[str] | None) -> None:
    assert reasons_of(mask) == reasons
