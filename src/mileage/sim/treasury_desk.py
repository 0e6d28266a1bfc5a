"""TreasuryDesk: lends the tenants' budgets to the one controller of a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mileage.control.accounts import AccountSpend
from mileage.control.treasury import Treasury
from mileage.core.actions import AskBudget, ReturnBudget
from mileage.core.events import BudgetGranted, BudgetRecalled
from mileage.policy.tenants import TenantLimits

__all__ = ["TreasuryDesk"]

_WORKER = 1


class TreasuryDesk:
    """The treasury of a fleet that begins with nothing spent. Its UTC clock starts at the begin of
    a month, so that periods are whole."""

    def __init__(self, tenants: Mapping[str, TenantLimits]) -> None:
        self._treasury = Treasury(tenants, now_utc_s=0.0)
        self._treasury.joined(_WORKER)
        self._treasury.found(
            [
                AccountSpend(account=each.account, window=each.window.number, spent=0)
                for each in self._treasury.unfounded(0.0)
            ],
            0.0,
        )

    def heard(
        self,
        spends: Iterable[AccountSpend],
        actions: Iterable[AskBudget | ReturnBudget],
        now_s: float,
    ) -> list[BudgetGranted | BudgetRecalled]:
        """What the controller has spent, asks and returns; what it is to be told."""
        said = self._treasury.heard(_WORKER, tuple(spends), tuple(actions), now_s)
        return [event for _, event in said]
