"""ReplicaLoad: what is in flight at one replica, and how long that keeps a new request waiting."""

from __future__ import annotations

import math

from mileage.core.replica import ReplicaView
from mileage.policy.cached_prefixes import CachedPrefixes
from mileage.policy.service_rate import FleetRates, ServiceRate

__all__ = ["PREFILL_COST_BUSY", "ReplicaLoad", "work_of"]

PREFILL_COST_BUSY = 0.2
"""What a prompt token takes of a busy engine, in output tokens."""
_PREFILL_COST_ALONE = 0.02
WINDOW_REQUESTS = 16
_WINDOW_S = 1.0
_BUSY_MIN_S = 1e-6
SILENCE_S = 30.0
VIEWS_APART_S = 0.25
KV_HOT_RATIO = 0.95
QUEUE_MIN = 2
QUEUE_RATIO = 0.1


def work_of(prompt_tokens: float, output_tokens: float) -> float:
    """Work of a request, in output tokens of a busy engine: what it takes from all the others.

    A busy engine prefills 3 to 10 times as many tokens per second as it generates. Every request
    takes one step at least.
    """
    return 1.0 + PREFILL_COST_BUSY * prompt_tokens + output_tokens


class ReplicaLoad:
    """One replica as the router sees it: our work there, that of others, and how fast it goes.

    `work` is that of our own requests in flight (see `work_of`), whole: how far each has come is
    not known here. Time is learned in another unit, output tokens of a request that is alone: there
    a prompt token costs a tenth of that, as generating for one leaves most of the engine unused.
    """

    __slots__ = (
        "_area",
        "_began_s",
        "_changed_s",
        "_done",
        "_done_work",
        "_expected",
        "_finished",
        "_idle_s",
        "_others",
        "_presence_s",
        "_queueing",
        "_rate",
        "_rates",
        "_sampled_s",
        "_view",
        "_view_until_s",
        "_window_due_s",
        "cached",
        "hot",
        "in_flight",
        "name_hash",
        "view_max_age_s",
        "work",
    )

    def __init__(self, name_hash: int, rates: FleetRates, view_max_age_s: float) -> None:
        self.name_hash = name_hash
        self.in_flight = 0
        self.work = 0.0
        self.hot = False
        """The engine runs out of KV cache: it preempts, or is about to."""
        self.cached = CachedPrefixes()
        self._rates = rates
        self._rate: ServiceRate = rates.join()
        self.view_max_age_s = view_max_age_s
        self._view: ReplicaView | None = None
        self._view_until_s = math.inf
        self._others = 0
        self._queueing = False
        self._sampled_s = -math.inf
        self._changed_s = 0.0
        self._window_due_s = -math.inf
        self._clear_window()

    def _clear_window(self) -> None:
        self._finished = 0
        self._done = self._done_work = self._expected = 0.0
        self._presence_s = self._area = self._idle_s = 0.0
        self._began_s = self._changed_s

    def join(self, rates: FleetRates) -> None:
        """Be a member of another fleet; nothing that was learned in the old one need hold."""
        self._rates.leave(self._rate)
        self._rates, self._rate = rates, rates.join()
        self._clear_window()

    def done_s(self, work_tokens: float, now_s: float) -> float:
        """Seconds until a request of `work_tokens` would be done if sent now."""
        if now_s > self._view_until_s:
            self._forget_view()
        work = self.work + work_tokens
        if self._others:
            work += self._others * self._rates.work_tokens
        return work * self._rate.s_per_token

    @property
    def cached_tokens_max(self) -> int | None:
        """Tokens that the engine's prefix cache has room for, by its last view: what it holds when
        it is full, where its events tell, else the size of its KV cache. None: not known."""
        view = self._view
        if view is None:
            return None
        return view.kv_tokens_max if view.kv_stored_tokens is None else view.kv_stored_tokens

    @property
    def work_per_s(self) -> float:
        """Work that the replica does per second when it is full, as far as is known."""
        return 1.0 / self._rate.s_per_token

    def wait_s(self, now_s: float) -> float:
        """Seconds that the work in flight keeps a request, if sent now, from being served."""
        return max(0.0, self.done_s(0.0, now_s) - self._rate.free_s)

    def started(self, work_tokens: float, now_s: float) -> None:
        """One of our requests was sent."""
        if not self.in_flight:
            self._idle_s += now_s - self._changed_s
        self.in_flight += 1
        self.work += work_tokens
        self._area -= now_s - self._began_s
        self._changed_s = now_s

    def ended(self, work_tokens: float, now_s: float) -> None:
        """One of our requests is no longer there; it teaches nothing."""
        self.in_flight -= 1
        # Exactly 0 when idle, whatever floating-point sums have left over.
        self.work = self.work - work_tokens if self.in_flight else 0.0
        self._area += now_s - self._began_s
        self._changed_s = now_s

    def finished(
        self,
        work_tokens: float,
        prompt_tokens: float,
        output_tokens: int,
        started_s: float,
        now_s: float,
    ) -> None:
        """One of our requests, sent at `started_s` as `work_tokens`, is complete: learn from it."""
        self.ended(work_tokens, now_s)
        self._count(work_tokens, prompt_tokens, output_tokens, now_s - started_s)
        if self._finished >= WINDOW_REQUESTS and now_s >= self._window_due_s:
            self._learn(now_s)

    def _count(
        self, work_tokens: float, prompt_tokens: float, output_tokens: int, presence_s: float
    ) -> None:
        """Take the request into the window of finished ones."""
        done = 1.0 + _PREFILL_COST_ALONE * prompt_tokens + output_tokens
        self._finished += 1
        self._done += done
        self._done_work += 1.0 + PREFILL_COST_BUSY * prompt_tokens + output_tokens
        self._expected += done * work_tokens
        self._presence_s += presence_s

    def _learn(self, now_s: float) -> None:
        """Close the window of finished requests.

        Speed is a ratio of sums over the same requests, in flight an exact mean over time: their
        product is far less noisy than tokens finished per second, where one long answer counts in
        the moment that it ends.
        """
        passed_s = now_s - self._began_s
        busy_s = passed_s - self._idle_s
        if self._presence_s > 0 and busy_s > _BUSY_MIN_S:
            # Each is in flight for the time since the window began, less that before its start.
            area = self._area + self.in_flight * passed_s
            in_flight = area / busy_s + self._others
            speed = self._done / self._presence_s
            self._rates.worked(self._expected / self._done, self._done_work / self._done)
            self._rate.sample(in_flight, speed, queueing=self._queueing)
            self._rates.refresh()
            self._sampled_s = now_s
        self._window_due_s = now_s + _WINDOW_S
        self._clear_window()

    def observed(self, view: ReplicaView, now_s: float) -> None:
        """The replica was scraped. A view older than the last one is ignored."""
        last = self._view
        if last is not None and view.observed_s <= last.observed_s:
            return
        if last is not None and view.kv_cleared_total != last.kv_cleared_total:
            self.cached.clear()
        if last is not None and view.observed_s - last.observed_s > self.view_max_age_s:
            last = None
        self._view = view
        self._view_until_s = view.observed_s + self.view_max_age_s
        running, waiting = view.running or 0, view.waiting or 0
        self._others = max(0, running + waiting - self.in_flight)
        self._queueing = waiting >= max(QUEUE_MIN, QUEUE_RATIO * running)
        kv_ratio = view.kv_cache_usage_ratio
        preempted = None if last is None else _grown(last.preemptions_total, view.preemptions_total)
        self.hot = (kv_ratio is not None and kv_ratio >= KV_HOT_RATIO) or bool(preempted)
        most = view.running_max if view.running_max and view.running_max > 0 else None
        if most != self._rate.running_max:
            self._rate.running_max = most
            self._rates.refresh()
        if last is not None and now_s - self._sampled_s > SILENCE_S:
            self._learn_from_views(last, view)

    def _learn_from_views(self, last: ReplicaView, view: ReplicaView) -> None:
        """Learn from the engine's own counters where our own requests are too few to tell."""
        prompt = _grown(last.prompt_tokens_total, view.prompt_tokens_total)
        output = _grown(last.output_tokens_total, view.output_tokens_total)
        apart_s = view.observed_s - last.observed_s
        if prompt is None or output is None or last.running is None or view.running is None:
            return
        in_flight = (last.running + view.running + (last.waiting or 0) + (view.waiting or 0)) / 2
        # Below one request at a time the engine stood idle in between, nobody knows for how long.
        if in_flight >= 1 and apart_s >= VIEWS_APART_S:
            speed = (_PREFILL_COST_ALONE * prompt + output) / apart_s / in_flight
            self._rate.sample(in_flight, speed, queueing=self._queueing)
            self._rates.refresh()

    def _forget_view(self) -> None:
        """The view is too old: only what we know ourselves counts."""
        self._view_until_s = math.inf
        self._others = 0
        self._queueing = self.hot = False

    def restarted(self) -> None:
        """The replica is up again: nothing that was learned or seen before need hold."""
        self._view = None
        self._forget_view()
        self._clear_window()
        self.cached.clear()
        self._rate.forget()
        self._rates.refresh()


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a counter has grown; None where unseen, or smaller than before: a restart."""
    if before is None or after is None or not after >= before:
        return None
    return after - before
