"""What a finding's remedy is expected to bring, and why that is not known where it is not."""

from __future__ import annotations

from mileage.doctor.evidence import Evidence
from mileage.doctor.finding import Gain
from mileage.doctor.gain.simulated import simulated_gains
from mileage.doctor.gain.simulator import Simulator
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.opinion import Opinion

__all__ = ["FINDINGS_SIMULATED", "expected_gains"]

FINDINGS_SIMULATED = 3
"""Of a diagnosis, those that come first: the others wait until these are dealt with."""


def expected_gains(
    opinion: Opinion, evidence: Evidence, simulator: Simulator | None
) -> tuple[tuple[Gain, ...], str | None]:
    """Ratios of after to before; and, where there is none, why.

    `simulator`: None where nothing is to be simulated: then only the share of the cost that is
    wasted speaks.
    """
    why = "it was not simulated"
    if opinion.severity == "critical":
        why = "it does not serve as it is, so that there is nothing to compare with"
    elif simulator is not None:
        answer = simulated_gains(evidence, opinion.changes, simulator)
        if isinstance(answer, Unsimulated):
            why = f"not simulated: {answer.why}"
        else:
            return answer, None
    waste = opinion.waste_ratio
    if waste is not None and waste.bounded:
        share = waste.clipped(0.0, 1.0)
        basis = "if the remedy ends all of the waste: it saves at most so much"
        gain = Gain("cost_ratio", round(1 - share.high, 3), round(1 - share.low, 3), basis)
        return (gain,), None
    return (), f"{why}; and the share of the cost that it wastes is not known"
