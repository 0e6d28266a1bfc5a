"""Flight: one request that was taken on, held or at a replica."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mileage.core.request import Request

if TYPE_CHECKING:
    from mileage.control.fair_queue import FairQueue, Flow
    from mileage.control.pool import Pool
    from mileage.control.replicas import Replica, Route, Takers

__all__ = ["Flight"]


class Flight:
    """`work` is what it is expected to take, as the router counts it (`policy.load.work_of`);
    `cost` is the same in the engine's own terms: output tokens, and prompt tokens by what they cost
    there (`Pool.prefill_cost`). `prompt_tokens` is the length of its context when it starts, media
    included.

    `queue` is where it is held; else `replica` is where it runs. `mark` is what the replica had
    done when the attempt was sent, or, once there was a first token, at that moment.
    """

    __slots__ = (
        "ahead_tokens",
        "attempts",
        "batched",
        "charged",
        "collecting",
        "cost",
        "deadline_s",
        "expires_s",
        "first_token_s",
        "flow",
        "forecast_s",
        "gpu_mark",
        "gpu_ns",
        "gpu_weight",
        "lost",
        "mark",
        "others",
        "pool",
        "prompt_tokens",
        "queue",
        "replica",
        "request",
        "route",
        "started_s",
        "takers",
        "ticket",
        "tried",
        "ttft_target_s",
        "unfunded",
        "work",
    )

    def __init__(
        self,
        request: Request,
        route: Route,
        takers: Takers,
        *,
        pool: Pool,
        work: float,
        cost: float,
        prompt_tokens: float,
        flow: Flow,
        ttft_target_s: float | None,
        deadline_s: float,
        expires_s: float,
    ) -> None:
        self.request = request
        self.route = route
        self.takers = takers
        self.pool = pool
        self.work = work
        self.cost = cost
        self.prompt_tokens = prompt_tokens
        self.flow = flow
        self.ttft_target_s = ttft_target_s
        self.deadline_s = deadline_s
        """By when its first token should come; where there is no target, by when it is to be sent:
        the order goes by it."""
        self.expires_s = expires_s
        """When it is held no longer."""
        self.queue: FairQueue | None = None
        self.replica: Replica | None = None
        self.started_s = math.inf
        self.first_token_s: float | None = None
        self.forecast_s: float | None = None
        """What it was expected to wait in the queue."""
        self.mark = (0.0, 0.0, 0.0, 0.0)
        self.collecting = False
        """It is held for company that goes upstream in the same call."""
        self.unfunded = False
        """It is held until its tenant's budget has room for it."""
        self.charged = False
        """Its flow has paid for it."""
        self.ahead_tokens = 0.0
        """Prompt tokens that were to be prefilled before its own when it was sent."""
        self.others = 0
        """Requests that were at the replica when it was sent."""
        self.batched = False
        """Others go upstream in one call with it."""
        self.gpu_ns = 0
        """GPU time that its attempts took, so far as they are over."""
        self.gpu_weight = self.gpu_mark = 0
        self.ticket = self.tried = self.attempts = self.lost = 0

    def take(self, other: Flight) -> None:
        """The other request goes upstream in one call with this one."""
        self.batched = True
        self.prompt_tokens += other.prompt_tokens
        if self.queue is not None:
            self.queue.grow(self, other.cost)
        else:
            self.cost += other.cost
        self.work += other.work
