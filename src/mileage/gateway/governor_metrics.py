"""Metric families of the governor: its queue, its limits, its refusals, and whether it works."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.control.governor_state import GovernorState
from mileage.control.replicas import ReplicaState
from mileage.core.timeline import RequestTimeline
from mileage.measure.metrics import Counter, Families, Gauge

__all__ = ["GovernorMetrics"]


class GovernorMetrics(Families):
    """What one worker's governor does. Gauges are added up over the workers."""

    def __init__(self) -> None:
        self.rejected = Counter(
            "mileage_requests_rejected_total",
            "Requests that were refused, by the code that their answer has.",
            ("tenant", "reason"),
        )
        self.queued = Counter(
            "mileage_requests_queued_total", "Requests that the governor has held."
        )
        self.queue = Gauge("mileage_queue_requests", "Requests that are held now.")
        self.replica_queue = Gauge(
            "mileage_replica_queue_requests",
            "The replica's part of the requests that are held now.",
            ("replica",),
        )
        self.limit = Gauge(
            "mileage_replica_limit",
            "Requests that the replica may run at once; in the mode observe, that it would.",
            ("replica",),
        )
        self.would_hold = Counter(
            "mileage_governor_would_hold_total", "Requests that the mode observe would have held."
        )
        self.would_refuse = Counter(
            "mileage_governor_would_refuse_total",
            "Requests that the mode observe would have refused.",
        )
        self.mode = Gauge("mileage_governor_mode", "Workers that govern in this mode.", ("mode",))
        self.failed = Gauge(
            "mileage_governor_failed",
            "Workers whose governor has failed, and lets everything through: 1 each.",
        )
        self.policy_failed = Gauge(
            "mileage_replica_policy_failed",
            "Workers in which the policy of the replica's limit has failed and was left out.",
            ("replica",),
        )

    def refused(self, timeline: RequestTimeline) -> None:
        """Count a request that has ended with the outcome `rejected`."""
        self.rejected.add((timeline.tenant, timeline.reason or "unknown"))

    def take(
        self,
        state: GovernorState,
        replicas: Sequence[ReplicaState],
        limits: dict[str, float],
        *,
        failed: bool,
    ) -> None:
        """Bring what is told of the present up to date. `limits`: this worker's parts."""
        self.queued.values[()] = state.held_total
        self.queue.set(state.held)
        self.would_hold.values[()] = state.would_hold_total
        self.would_refuse.values[()] = state.would_refuse_total
        self.failed.set(int(failed))
        # Of modes, and of replicas, that are gone nothing is told.
        for gauge in (self.mode, self.replica_queue, self.limit, self.policy_failed):
            gauge.values.clear()
        self.mode.set(1, (state.mode,))
        for name, waiting in state.waiting.items():
            self.replica_queue.set(waiting, (name,))
        for name, limit in limits.items():
            self.limit.set(limit, (name,))
        for replica in replicas:
            self.policy_failed.set(int(replica.policy_failed), (replica.name,))
