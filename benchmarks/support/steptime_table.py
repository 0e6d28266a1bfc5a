"""Writes the module of the fitted efficiencies."""

from __future__ import annotations

from pathlib import Path

from mileage.costmodel.efficiency import Efficiency

__all__ = ["TABLE", "table_text"]

TABLE = Path(__file__).resolve().parents[2] / "src/mileage/costmodel/efficiency_table.py"

_HEAD = '''"""The fitted efficiencies, as `python -m benchmarks.steptime --write` writes them."""

from __future__ import annotations

from typing import Final

from mileage.costmodel.efficiency import Efficiency

__all__ = ["FITTED", "TPOT_INTERVAL", "TTFT_INTERVAL"]

FITTED: Final = Efficiency(
'''
_TAIL = ''')

TPOT_INTERVAL: Final = ({tpot[0]:.3f}, {tpot[1]:.3f})
"""Four of five measured TPOTs are within these multiples of the predicted one."""

TTFT_INTERVAL: Final = ({ttft[0]:.3f}, {ttft[1]:.3f})
"""The same of TTFT, where prompts do not queue."""
'''


def table_text(fitted: Efficiency, tpot: tuple[float, float], ttft: tuple[float, float]) -> str:
    """The module; times in engineering notation, shares with three digits."""
    lines = [f"    {name}={getattr(fitted, name):.3g},\n" for name in Efficiency.__struct_fields__]
    return _HEAD + "".join(lines) + _TAIL.format(tpot=tpot, ttft=ttft)
