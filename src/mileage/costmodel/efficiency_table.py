"""The fitted efficiencies, as `python -m benchmarks.steptime --write` writes them."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.efficiency import Efficiency

__all__ = ["FITTED", "TPOT_INTERVAL", "TTFT_INTERVAL"]

FITTED: Final = Efficiency()

TPOT_INTERVAL: Final = (0.8, 1.25)
"""Four of five measured TPOTs are within these multiples of the predicted one."""

TTFT_INTERVAL: Final = (0.6, 1.6)
"""The same of TTFT, where prompts do not queue."""
