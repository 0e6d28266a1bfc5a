"""Experiments for tests: plans of every kind, as a controller is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import get_args

import msgspec

from mileage.control.config import LimitPolicyName
from mileage.control.experiment_config import ArmGovernor, ArmRouting, ExperimentPlan
from mileage.core.events import ExperimentChanged
from mileage.policy.experiment import ExperimentSplit, Sticky
from mileage.policy.limits.static import StaticConfig

__all__ = ["any_experiment", "told"]


def told(plan: ExperimentPlan | None) -> ExperimentChanged:
    return ExperimentChanged("" if plan is None else msgspec.json.encode(plan).decode())


def any_experiment(names: Sequence[str], random: Random, began_s: float) -> ExperimentChanged:
    """None, one with replicas of its own, or one in slots of time; sometimes no plan at all."""
    draw = random.random()
    if draw < 0.2:
        return random.choice((told(None), ExperimentChanged("{}"), ExperimentChanged("nonsense")))
    own = tuple(name for name in names if random.random() < 0.5)
    return told(
        ExperimentPlan(
            split=ExperimentSplit(
                name=random.choice(("one", "two")),
                ratio=random.choice((0.0, 0.2, 0.5, 1.0)),
                sticky=random.choice(get_args(Sticky)),
                slot_s=None if draw < 0.7 else random.choice((0.05, 1.0)),
                washout_s=0.01,
                began_s=began_s,
            ),
            replicas=own,
            governor=random.choice(
                (
                    None,
                    ArmGovernor(policy="static", static=StaticConfig(limit=1)),
                    ArmGovernor(policy=random.choice(get_args(LimitPolicyName))),
                )
            ),
            routing=random.choice((None, ArmRouting(affinity=False))),
        )
    )
