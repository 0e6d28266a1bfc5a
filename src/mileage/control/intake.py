"""Intake: what tenants may use, held to before anything else, and what their requests cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.control.accounts import AccountSpend
from mileage.control.budgets import BudgetRefusal, Budgets
from mileage.control.config import ControlConfig
from mileage.control.flight import Flight
from mileage.control.gpu_meter import split
from mileage.control.rates import TenantGate, TenantRates
from mileage.control.spend import Estimate, Spend, SpendEstimator
from mileage.core.actions import Action, Reject
from mileage.core.events import BudgetGranted, BudgetRecalled, Finished
from mileage.core.request import Priority, Request
from mileage.policy.tenants import TenantLimits

__all__ = ["Intake", "Terms"]

_RANK: dict[Priority, int] = {"high": 2, "normal": 1, "low": 0}
_NO_LIMITS = TenantLimits()
_ORDER = {"weight": 1.0, "priority": "normal"}
"""What is about the order alone, and limits nothing."""
_SPENDS_MAX = 10_000
_LEARN_EVERY = 32
_BUDGET_WAIT_RETRY_S = 1.0


class Terms(msgspec.Struct, frozen=True, gc=False):
    """How a request is ordered among others."""

    priority: Priority
    weight: float


class _Claim(msgspec.Struct, gc=False):
    """What was taken of its tenant's rates for a request that was admitted."""

    request: Request
    tokens: int
    estimate: Estimate | None


class Intake:
    """Admits requests by the rates, the concurrency and the budgets of their tenants.

    Each that was admitted is to be settled, or released, once. Of those that share a generation
    each pays a part, and the parts sum to the whole.
    """

    def __init__(self, config: ControlConfig) -> None:
        self._gate = TenantGate(config.tenants)
        self._budgets = Budgets(config.tenants)
        self._estimator = SpendEstimator(config.costs, gpus_max=_gpus_max(config))
        self._claims: dict[int, _Claim] = {}
        self._spends: dict[int, Spend] = {}
        self._unlearned = 0
        self._set_terms(config)

    def _set_terms(self, config: ControlConfig) -> None:
        tenants = config.tenants
        self._terms = {name: Terms(t.priority, t.weight) for name, t in tenants.items()}
        self._limited = {
            name
            for name, t in tenants.items()
            if msgspec.structs.replace(t, **_ORDER) != _NO_LIMITS
        }
        self.limits = bool(self._limited)
        """Whether any tenant has limits: else nothing needs to be admitted."""
        self._priced = config.costs.usd_per_gpu_hour is not None or bool(config.costs.models)
        self._metered = {name for name, t in tenants.items() if t.tokens_per_min or t.budgets}
        self._default = Terms(_NO_LIMITS.priority, _NO_LIMITS.weight)

    def reconfigure(self, config: ControlConfig, now_s: float) -> None:
        """Other limits from now on; what was taken stays taken."""
        self._set_terms(config)
        self._gate.reconfigure(config.tenants, now_s)
        self._budgets.reconfigure(config.tenants)
        self._estimator.reconfigure(config.costs, gpus_max=_gpus_max(config))

    def open_up(self) -> None:
        """Admit everything from now on: a part of the controller has failed."""
        self.limits = False

    def share(self, ratio: float, now_s: float) -> None:
        """This process may use so much of every limit."""
        self._gate.share(ratio, now_s)

    def terms(self, request: Request) -> Terms:
        """By its tenant; a client may ask for a lower priority, and not for a higher one."""
        terms = self._terms.get(request.tenant, self._default)
        wanted = request.priority
        if wanted is not None and _RANK[wanted] < _RANK[terms.priority]:
            return Terms(wanted, terms.weight)
        return terms

    # --- one request --------------------------------------------------------------------------

    def admit(self, flight: Flight, now_s: float) -> Reject | None:
        """Take what the request may use; a refusal has taken nothing.

        Where its budget has no room yet the flight is `unfunded` from then on.
        """
        request = flight.request
        tenant = request.tenant
        if not (tenant in self._limited or _shared(request)):
            return None
        estimate, tokens = None, 0
        if tenant in self._metered:
            estimate = self._estimator.estimate(request)
            tokens = estimate.likely.tokens
        refusal = self._gate.admit(request, tokens, now_s)
        if refusal is not None:
            return Reject(request.id, refusal.reason, refusal.retry_after_s, refusal.detail)
        self._claims[request.id] = _Claim(request, tokens, estimate)
        if estimate is None or not self._budgets.has(tenant):
            return None
        return self._reserve(flight, estimate, now_s)

    def refuses(self, tenant: str, now_s: float) -> bool:
        """Whether the tenant's rates and concurrency let nothing in now; takes nothing."""
        return self.limits and tenant in self._limited and self._gate.refuses(tenant, now_s)

    def fund(self, flight: Flight, now_s: float) -> Reject | None:
        """Try again to find room in the budget for an unfunded request, by what is known by now."""
        claim = self._claims.get(flight.request.id)
        if claim is None or claim.estimate is None:
            flight.unfunded = False
            return None
        claim.estimate = self._estimator.estimate(claim.request)
        return self._reserve(flight, claim.estimate, now_s, held=True)

    def _reserve(
        self, flight: Flight, estimate: Estimate, now_s: float, *, held: bool = False
    ) -> Reject | None:
        request = flight.request
        said = self._budgets.reserve(request, estimate, now_s)
        flight.unfunded = said == "wait"
        if not isinstance(said, BudgetRefusal):
            return None
        if said.retry_after_s is None:
            self._estimator.doubt(request, now_s)
        if not held:
            self._drop(request.id, now_s)
        return Reject(request.id, "budget_exhausted", said.retry_after_s, said.detail)

    def unfunded(self, flight: Flight) -> Reject:
        """The refusal of a request whose budget had no room for it in time."""
        detail = "what is left of the tenant's budget is reserved for requests on their way"
        return Reject(flight.request.id, "budget_exhausted", _BUDGET_WAIT_RETRY_S, detail)

    def settle(
        self,
        members: Sequence[int],
        flight: Flight,
        event: Finished | None,
        now_s: float,
        *,
        seen: int | None = None,
    ) -> None:
        """The generation is over: charge its cost to the requests that waited for it.

        `event`: None where it came to no end; the tokens that were `seen` of it, or else its GPU
        time, then tell what it cost: at most what was reserved.
        """
        if event is None and seen is not None:
            event = Finished(flight.request.id, None, None, seen)
        claims: Sequence[_Claim | None] = ()
        if self._claims:
            claims = [self._claims.pop(member, None) for member in members]
        if not any(claims):
            self._cost(members, flight, event)
            return
        parts = self._parts(claims, flight, event)
        guessed = event is None or event.prompt_tokens is None or event.output_tokens is None
        for member, claim, spend in zip(members, claims, parts, strict=True):
            if claim is not None:
                if guessed and claim.estimate is not None:
                    spend = spend.at_most(claim.estimate.most)
                self._gate.ended(claim.request.tenant, claim.tokens, spend.tokens, now_s)
                if claim.estimate is not None:
                    self._budgets.settle(member, spend, now_s)
            self._tell(member, spend)

    def _cost(self, members: Sequence[int], flight: Flight, event: Finished | None) -> None:
        """What requests cost of tenants that have no limit."""
        prompt = output = None
        if event is not None:
            prompt, output = event.prompt_tokens, event.output_tokens
        # Now and then it learns all the same: a budget may come with the next reload.
        learn = bool(self._metered)
        if not learn:
            self._unlearned -= 1
            if self._unlearned <= 0:
                learn, self._unlearned = True, _LEARN_EVERY
        if prompt is None or output is None or prompt < 0 or output < 0 or learn or self._priced:
            whole = self._estimator.actual(
                flight.request,
                gpu_ns=flight.gpu_ns,
                prompt_tokens=prompt,
                output_tokens=output,
                cached_tokens=None if event is None else event.cached_tokens,
                learn=learn,
            )
        else:
            whole = Spend(prompt + output, flight.gpu_ns, None)
        if len(members) == 1:
            self._tell(members[0], whole)
            return
        for member, part in zip(members, _shares(whole, [1] * len(members)), strict=True):
            self._tell(member, part)

    def _tell(self, request_id: int, spend: Spend) -> None:
        """Keep what a request cost until the host asks for it."""
        spends = self._spends
        if len(spends) >= _SPENDS_MAX:
            del spends[next(iter(spends))]  # nobody has asked for it
        spends[request_id] = spend

    def _parts(
        self, claims: Sequence[_Claim | None], flight: Flight, event: Finished | None
    ) -> list[Spend]:
        """What each of those that share a generation pays. Where some of them have no claim, since
        limits came or went with a reload meanwhile, all pay alike."""
        prompt = output = cached = None
        if event is not None:
            prompt, output = event.prompt_tokens, event.output_tokens
            cached = event.cached_tokens
        asked = [claim.request for claim in claims if claim is not None]
        if len(asked) < max(2, len(claims)) or not flight.batched:
            whole = self._estimator.actual(
                flight.request,
                gpu_ns=flight.gpu_ns,
                prompt_tokens=prompt,
                output_tokens=output,
                cached_tokens=cached,
                learn=bool(self._metered),
            )
            return _shares(whole, [1] * len(claims)) if len(claims) > 1 else [whole]
        weights = [max(1, request.prompt_tokens_estimate) for request in asked]
        gpu = split(flight.gpu_ns, weights)
        prompts = split(prompt or 0, weights)
        return [
            self._estimator.actual(
                request,
                gpu_ns=gpu[i],
                prompt_tokens=None if prompt is None else prompts[i],
                output_tokens=None if prompt is None else 0,
            )
            for i, request in enumerate(asked)
        ]

    def release(self, members: Sequence[int], now_s: float) -> None:
        """The requests are over and cost nothing: refused, or gone while others wait on."""
        for request_id in members:
            self._drop(request_id, now_s)

    def _drop(self, request_id: int, now_s: float) -> None:
        claim = self._claims.pop(request_id, None)
        if claim is not None:
            self._gate.ended(claim.request.tenant, claim.tokens, 0, now_s)
            if claim.estimate is not None:
                self._budgets.release(request_id)

    # --- for the host -------------------------------------------------------------------------

    def budget_event(self, event: BudgetGranted | BudgetRecalled, now_s: float) -> None:
        """The treasury has spoken."""
        if isinstance(event, BudgetGranted):
            self._budgets.granted(event, now_s)
        else:
            self._budgets.recalled(event)

    @property
    def ready(self) -> bool:
        """Whether unfunded requests may be tried again."""
        return self._budgets.ready

    def take_ready(self) -> tuple[str, ...]:
        """The tenants whose unfunded requests may be tried again."""
        return self._budgets.take_ready()

    def take_actions(self) -> Sequence[Action]:
        """What is to be told to the treasury."""
        return self._budgets.take_actions()

    def take_spend(self, request_id: int) -> Spend | None:
        """What a request cost that has ended; told once, None where that is not known."""
        return self._spends.pop(request_id, None)

    def spends(self) -> tuple[AccountSpend, ...]:
        """What was spent of each budget."""
        return self._budgets.spends()

    def rates(self, tenant: str, now_s: float) -> TenantRates | None:
        """How the tenant's rates stand; None where it has none."""
        return self._gate.rates(tenant, now_s)


def _shared(request: Request) -> bool:
    """Whether its cost may be shared with others, some of which may have limits."""
    return request.merge_key is not None or request.batch_key is not None


def _gpus_max(config: ControlConfig) -> float:
    return max(config.replica_gpus.values(), default=1.0)


def _shares(whole: Spend, weights: Sequence[int]) -> list[Spend]:
    """The whole in parts that sum to it."""
    tokens, gpu = split(whole.tokens, weights), split(whole.gpu_ns, weights)
    usd = whole.nano_usd
    dollars = [None] * len(weights) if usd is None else split(usd, weights)
    return [Spend(*part) for part in zip(tokens, gpu, dollars, strict=True)]
