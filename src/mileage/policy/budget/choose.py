"""Which policy sets the budget: from its name to a fresh object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from mileage.policy.budget.fixed import FixedBudget
from mileage.policy.budget.model import ModelBudget, ModelBudgetConfig
from mileage.policy.budget.policy import BudgetPolicy

__all__ = ["BUDGET_POLICIES", "BudgetPolicyName", "make_budget"]

BudgetPolicyName: TypeAlias = Literal["fixed", "model"]

BUDGET_POLICIES: Mapping[str, Callable[[ModelBudgetConfig, float | None], BudgetPolicy]] = {
    "fixed": lambda _, __: FixedBudget(),
    "model": ModelBudget,
}


def make_budget(
    name: BudgetPolicyName, itl_s: float | None, model: ModelBudgetConfig | None = None
) -> BudgetPolicy:
    """A policy for one engine; `itl_s` is the ITL target in seconds, where there is one."""
    return BUDGET_POLICIES[name](model or ModelBudgetConfig(), itl_s)
