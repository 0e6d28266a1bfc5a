"""PrefillConfig: which policies decide, inside an engine, what is prefilled when."""

from __future__ import annotations

import msgspec

from mileage.core.slo import Slo
from mileage.policy.budget.choose import BudgetPolicyName
from mileage.policy.budget.model import ModelBudgetConfig
from mileage.policy.ordering.choose import OrderingPolicyName
from mileage.policy.ordering.shortest import ShortestConfig

__all__ = ["PrefillConfig"]


class PrefillConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine's order of prompts, and how many of their tokens each step has."""

    ordering: OrderingPolicyName = "deadline"
    """fcfs: as they come; deadline: earliest deadline first; shortest: short ones first, with
    age."""
    budget: BudgetPolicyName = "model"
    """fixed: as many as fit into a step; model: as many as leave it within the ITL target."""
    slo: Slo = Slo()
    """The targets that they go by."""
    shortest: ShortestConfig = ShortestConfig()
    model: ModelBudgetConfig = ModelBudgetConfig()
