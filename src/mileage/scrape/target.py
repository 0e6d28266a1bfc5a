"""What the poller asks of one replica (PollTarget), and what it knows of it (PollStatus)."""

from __future__ import annotations

import msgspec

from mileage.core.replica import Adapter, ReplicaView
from mileage.scrape.health import FAILURES_MAX, TIMEOUTS_MAX, HealthState

__all__ = ["PollStatus", "PollTarget"]


class PollTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One replica to be watched: a remote engine, or the embedded one.

    Of the health, metrics and version URLs the first that the engine has (that answers other than
    404, 405 or 501) is used; a health URL equal to `models_url` serves for both. `authorization`,
    the value of that header, goes only to URLs of `url`'s own origin.
    """

    kind: str
    name: str
    url: str
    health_urls: tuple[str, ...]
    models_url: str
    metrics_urls: tuple[str, ...] = ()
    version_urls: tuple[str, ...] = ()
    version_field: str = "version"
    authorization: str | None = None
    models: tuple[str, ...] = ()
    """Models it is said to serve; empty: ask `models_url` at every check."""
    lora_slots: int = 0
    """Adapters that it loads while it runs: they are asked for at `models_url` in any case."""
    health_interval_s: float = 2.0
    health_timeout_s: float = 2.0
    scrape_interval_s: float = 1.0
    scrape_timeout_s: float = 5.0
    """trtllm-serve holds back its JSON for up to 2 s while it is idle."""
    dcgm_url: str | None = None
    """Page of a DCGM exporter that has the replica's GPUs."""
    gpu_ids: tuple[str, ...] = ()
    """The replica's GPUs there, or on this machine; empty: all."""
    nvml: bool = False
    """The GPUs are of this machine: ask NVML."""
    kv_events_url: str | None = None
    """Where the first rank of the engine publishes its cache events."""
    kv_events_replay_url: str | None = None
    kv_events_ranks: int = 1
    failures_max: int = FAILURES_MAX
    timeouts_max: int = TIMEOUTS_MAX


class PollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as the poller sees it, for people. Counts are since the poller began.

    `checked_s`: when the last check ended, on the poller's clock; `health_error`: why it failed,
    None if it did not; `metrics_kind`: what the metrics look like; `scrape_age_s`: the age of the
    last view, None if there was none; `busy_error`: why it is not known how busy it is; `loading`:
    it answers, and has not been ready since it began to.
    """

    name: str
    kind: str
    url: str
    state: HealthState
    models: tuple[str, ...]
    adapters: tuple[Adapter, ...]
    loading: bool
    version: str | None
    health_error: str | None
    checked_s: float | None
    checks_failed: int
    metrics_kind: str | None
    scrape_age_s: float | None
    scrapes: int
    scrapes_failed: int
    scrape_error: str | None
    lines_bad: int
    view: ReplicaView | None
    busy_error: str | None = None

    @property
    def observation_error(self) -> str | None:
        """Why views are missing, or a part of them."""
        return "; ".join(filter(None, (self.scrape_error, self.busy_error))) or None
