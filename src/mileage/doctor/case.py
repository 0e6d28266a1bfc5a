"""The case for one cause: what decides it, what speaks for it and what against it."""

from __future__ import annotations

from mileage.doctor.check import Check
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion, Outcome, Severity, Sign

__all__ = ["FINDING_LOG_ODDS", "PRIOR_LOG_ODDS", "Case"]

PRIOR_LOG_ODDS = -2.0
"""Before anything is known a cause is unlikely (12 %): few of the many hold at once."""

FINDING_LOG_ODDS = 0.0
"""A cause is a finding where it is likelier than not."""


class Case:
    """Gathers checks about one cause, and weighs them.

    - `must`: a condition without which it is not this cause. No: clear. Not known: no finding.
    - `shows`: what decides it. Several are alternatives: one that is met makes a finding
      possible; all that are known unmet make it clear.
    - `sign`: adds to the odds, or takes from them, and decides nothing alone.
    - `refutes`: where it is met, it is not this cause.

    Weights are natural logarithms of likelihood ratios, by how much likelier the answer is where
    the cause holds than where it does not: 1 is weak (2.7 times), 2 is good (7 times), 3 strong
    (20 times), 4 nearly proof (55 times). A finding needs a decider, and odds above even: with the
    prior of -2 a single decider of weight 3 gives 73 %.
    """

    def __init__(self, prior: float = PRIOR_LOG_ODDS) -> None:
        self._log_odds = prior
        self._signs: list[Sign] = []
        self._missing: list[str] = []
        self._needed: list[bool | None] = []
        self._shown: list[bool | None] = []
        self._refuted = False

    def must(self, check: Check, yes: float = 0.0) -> None:
        """Without this it is not the cause; met, it adds `yes`."""
        self._needed.append(check.truth)
        self._weigh(check, yes, 0.0)

    def shows(self, check: Check, weight: float) -> None:
        """One of the checks that decide; met, it adds `weight`."""
        self._shown.append(check.truth)
        self._weigh(check, weight, 0.0)

    def sign(self, check: Check, *, yes: float = 0.0, no: float = 0.0) -> None:
        """Speaks for (`yes`, positive) or against (`no`, negative) the cause."""
        self._weigh(check, yes, no)

    def refutes(self, check: Check) -> None:
        """Where it is met, it is not this cause. Not known: nothing."""
        if check.truth:
            self._refuted = True
            self._signs.extend(Sign(single, 0.0) for single in check.evidence())

    def opinion(
        self,
        severity: Severity = "warning",
        *,
        advice: str = "",
        changes: tuple[Change, ...] = (),
        waste_ratio: Interval | None = None,
        loss_usd_per_month: Interval | None = None,
    ) -> Opinion:
        """The outcome, with what to do where it is a finding."""
        return Opinion(
            outcome=self._outcome(),
            log_odds=self._log_odds,
            signs=tuple(self._signs),
            missing=tuple(dict.fromkeys(self._missing)),
            severity=severity,
            advice=advice,
            changes=changes,
            waste_ratio=waste_ratio,
            loss_usd_per_month=loss_usd_per_month,
        )

    @property
    def likely(self) -> bool:
        """Is it a finding as things stand?"""
        return self._outcome() == "finding"

    def _outcome(self) -> Outcome:
        if self._refuted or False in self._needed:
            return "clear"
        if self._shown and True not in self._shown:
            return "clear" if None not in self._shown else "not_enough_evidence"
        if None in self._needed or not (self._shown or self._needed):
            return "not_enough_evidence"
        if self._log_odds > FINDING_LOG_ODDS:
            return "finding"
        return "not_enough_evidence"

    def _weigh(self, check: Check, yes: float, no: float) -> None:
        self._missing.extend(check.asked())
        if check.truth is None:
            return
        weight = yes if check.truth else no
        self._log_odds += weight
        singles = [single for single in check.evidence() if single.truth is check.truth]
        self._signs.extend(
            Sign(single, weight if n == 0 else 0.0) for n, single in enumerate(singles)
        )
