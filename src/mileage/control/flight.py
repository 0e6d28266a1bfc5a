"""Flight: one request that was taken on, held or at a replica."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from mileage.control.config import ControlConfig
from mileage.core.request import Request
from mileage.policy.cached_prefixes import PrefixGuess
from mileage.policy.experiment import ArmName
from mileage.policy.load import work_of
from mileage.policy.modality import normalised_load_tokens
from mileage.policy.prefix_choice import work_after_hit
from mileage.policy.routing import Candidates, Router

if TYPE_CHECKING:
    from mileage.control.fair_queue import FairQueue, Flow
    from mileage.control.pool import Pool
    from mileage.control.replica import Replica
    from mileage.control.replicas import Route, Takers

__all__ = ["Flight", "make_flight"]


class Flight(msgspec.Struct, eq=False):
    """`work` is what it is expected to take, as the router counts it (`policy.load.work_of`);
    `cost` is the same in the engine's own terms: output tokens, and prompt tokens by what they cost
    there (`Pool.prefill_cost`). `prompt_tokens` is the length of its context when it starts, media
    included. By `deadline_s` its first token should come, or, where there is no target, it is to be
    sent: the order goes by it. At `expires_s` it is held no longer.

    `queue` is where it is held; else `replica` is where it runs. `mark` is what the replica had
    done when the attempt was sent, or, once there was a first token, at that moment.
    """

    request: Request
    route: Route
    takers: Takers
    pool: Pool
    work: float
    cost: float
    prompt_tokens: float
    ttft_target_s: float | None
    deadline_s: float
    expires_s: float
    arm: ArmName | None = None
    """Of the experiment that ran when it came."""
    flow: Flow = None  # type: ignore[assignment]
    """Known once it is held."""
    queue: FairQueue | None = None
    replica: Replica | None = None
    started_s: float = math.inf
    first_token_s: float | None = None
    held_s: float = math.inf
    """Since when it is held for its model to be loaded."""
    forecast_s: float | None = None
    """What it was expected to wait in the queue."""
    mark: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    collecting: bool = False
    """It is held for company that goes upstream in the same call."""
    unfunded: bool = False
    """It is held until its tenant's budget has room for it."""
    counted: bool = False
    """Where the governor only observes: what would become of it is counted."""
    charged: bool = False
    """Its flow has paid for it."""
    company: dict[int, Flight] | None = None
    """Others that go upstream in one call with it, by id."""
    ahead_tokens: float = 0.0
    """Prompt tokens that were to be prefilled before its own when it was sent."""
    others: int = 0
    """Requests that were at the replica when it was sent."""
    gpu_ns: int = 0
    """GPU time that its attempts took, so far as they are over."""
    gpu_weight: int = 0
    gpu_mark: int = 0
    guess: PrefixGuess | None = None
    """What of its prompt the replica's cache probably had when it was sent."""
    sent_work: float = 0.0
    """Its work without that."""
    ticket: int = 0
    tried: int = 0
    attempts: int = 0
    lost: int = 0

    @property
    def batched(self) -> bool:
        """Others go upstream in one call with it."""
        return bool(self.company)

    def choose(self, router: Router, candidates: Candidates[Replica], now_s: float) -> Replica:
        """Where the router would send it; there must be one candidate at least."""
        request = self.request
        return router.choose(
            candidates,
            self.work,
            request.prefix_key,
            now_s,
            request.prefix_blocks,
            request.prefix_block_tokens,
        )

    def sent(self, replica: Replica, now_s: float) -> float:
        """It is sent to the replica: gives its work there, without what is cached of its prompt."""
        blocks = self.request.prefix_blocks
        work = self.work
        if blocks:
            cached, block_tokens = replica.cached, self.request.prefix_block_tokens
            if replica.cached_tokens_max is not None:
                cached.room(replica.cached_tokens_max, block_tokens)
            self.guess = cached.sent(blocks)
            work = work_after_hit(work, min(self.guess.hit * block_tokens, self.prompt_tokens))
            cached.worked(work, now_s)
        self.sent_work = work
        return work

    def answered(self, replica: Replica, cached_tokens: int | None) -> None:
        """Its answer came from the replica, which says so much of its prompt was cached."""
        if self.guess is not None and cached_tokens is not None:
            replica.cached.answered(self.guess, cached_tokens // self.request.prefix_block_tokens)

    def take(self, other: Flight) -> None:
        """The other request goes upstream in one call with this one."""
        if self.company is None:
            self.company = {}
        self.company[other.request.id] = other
        self._grow(other.prompt_tokens, other.cost, other.work)

    def drop(self, request_id: int) -> Flight | None:
        """A request that was to go with this one has left before that was sent; None: unknown."""
        other = self.company.pop(request_id, None) if self.company else None
        if other is not None:
            self._grow(-other.prompt_tokens, -other.cost, -other.work)
        return other

    def _grow(self, prompt_tokens: float, cost: float, work: float) -> None:
        self.prompt_tokens += prompt_tokens
        if self.queue is not None:
            self.queue.grow(self, cost)
        else:
            self.cost += cost
        self.work += work


def make_flight(
    request: Request,
    route: Route,
    takers: Takers,
    pool: Pool,
    config: ControlConfig,
    arm: ArmName | None = None,
) -> Flight:
    """A request that has just come: what it is expected to take, and by when it should run."""
    arrived_s, governor, slo = request.arrived_s, config.governor, config.slo
    prompt_tokens: float = request.prompt_tokens_estimate
    if request.image_patches or request.audio_frames:
        prompt_tokens = normalised_load_tokens(request)
    its = slo.of(request.model) if slo.models else slo
    target_s = its.ttft_s
    deadline_s = expires_s = arrived_s + governor.queue_wait_max_s
    if target_s is not None:
        if its.ttft_unloaded_ratio is not None:
            target_s = its.ttft_target_s(pool.speed.alone_s(prompt_tokens)) or target_s
        deadline_s = arrived_s + target_s
        if governor.reject_late:
            expires_s = deadline_s
    output_tokens, bound = route.output_tokens, request.output_tokens_max
    if request.endpoint == "embeddings":
        output_tokens = 0.0
    elif bound is not None and bound < output_tokens:
        output_tokens = bound
    return Flight(
        request,
        route,
        takers,
        pool,
        work_of(prompt_tokens, output_tokens),
        pool.cost_of(prompt_tokens, output_tokens),
        prompt_tokens,
        target_s,
        deadline_s,
        expires_s,
        arm,
    )
