"""What answers take beside the steps that the simulator counts."""

from __future__ import annotations

from mileage.cli.simulate_fleet import Fleet
from mileage.sim.outcome import OK
from mileage.sim.simulation import SimResult

__all__ = ["delay_answers"]


def delay_answers(result: SimResult, fleet: Fleet) -> None:
    """Every answer begins, and ends, so much later: by what a fitted engine does besides, and by
    the stages that a prompt passes in turn."""
    fitted, fill, out = fleet.fitted, fleet.fill, result.outcomes
    besides_s = 0.0 if fitted is None else fitted.first_token_s
    if not besides_s and fill is None:
        return
    for row, status in enumerate(out.status):
        if status != OK:
            continue
        by_s = besides_s
        if fill is not None:
            by_s += fill.seconds(out.prompt_tokens[row], out.cached_tokens[row])
        out.ttft_s[row] += by_s
        out.e2e_s[row] += by_s
