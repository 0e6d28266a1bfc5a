"""A small deterministic engine that works step by step, with a gateway that keeps to a limit.

Continuous batching as engines do it: every step generates one token for each request past its
prefill, and prefills further prompts up to the token budget. The time of a step is given. Requests
wait in the gateway while the limit, or the bound of prefill in flight, is reached.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from mileage.core.replica import ReplicaView
from mileage.policy.limits.limit import LimitDecision, LimitPolicy, LimitSignals, RequestSample

__all__ = ["IterationEngine", "Job", "Run", "StepTime", "poisson_jobs"]

StepTime = Callable[[float, float, float], float]
"""Seconds of a step, of (requests generating, tokens of their context, tokens prefilled)."""


@dataclass(slots=True, eq=False)
class Job:
    """One request, and how it went."""

    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    started_s: float = 0.0
    first_s: float | None = None
    last_s: float = 0.0
    prefilled: int = 0
    generated: int = 0
    gaps_s: list[float] = field(default_factory=list)
    mark: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def itl_p99_s(self) -> float | None:
        """The p99 of its own gaps (nearest rank), None for fewer than two tokens."""
        gaps = sorted(self.gaps_s)
        return gaps[math.ceil(0.99 * len(gaps)) - 1] if gaps else None

    @property
    def ttft_s(self) -> float:
        assert self.first_s is not None
        return self.first_s - self.arrived_s


@dataclass(slots=True)
class Run:
    """What came of it."""

    done: list[Job]
    decisions: list[tuple[float, LimitDecision]]
    duration_s: float

    def limits(self, since_s: float = 0.0) -> list[int]:
        return [decision.limit for at_s, decision in self.decisions if at_s >= since_s]

    def tokens_per_s(self, since_s: float = 0.0) -> float:
        tokens = sum(job.generated for job in self.done if job.last_s >= since_s)
        return tokens / (self.duration_s - since_s)

    def attained(self, itl_s: float, since_s: float = 0.0) -> float:
        """The part of the requests whose p99 gap was at most `itl_s`."""
        gaps = [job.itl_p99_s for job in self.done if job.last_s >= since_s]
        return sum(gap is None or gap <= itl_s for gap in gaps) / max(1, len(gaps))


def poisson_jobs(
    random: Random,
    rate: float,
    duration_s: float,
    prompt_tokens: tuple[int, int] = (50, 400),
    output_tokens: tuple[int, int] = (50, 200),
) -> list[Job]:
    """Poisson arrivals, with lengths uniform in the ranges."""
    jobs: list[Job] = []
    now_s = 0.0
    while True:
        now_s += random.expovariate(rate)
        if now_s >= duration_s:
            return jobs
        jobs.append(Job(now_s, random.randint(*prompt_tokens), random.randint(*output_tokens)))


class IterationEngine:
    """One replica. `views`: it tells what it runs and how full its memory is, once a second."""

    def __init__(
        self,
        step_s: StepTime,
        *,
        slots: int = 256,
        chunk_tokens: int = 2048,
        kv_tokens_max: int | None = None,
        busy_running: int | None = None,
    ) -> None:
        self._step_s = step_s
        self._slots = slots
        self._chunk_tokens = chunk_tokens
        self._kv_tokens_max = kv_tokens_max
        self._busy_running = busy_running

    def run(
        self,
        policy: LimitPolicy,
        jobs: Sequence[Job],
        duration_s: float,
        *,
        limit: int | None = None,
        itl_target_s: float | None = None,
        ttft_target_s: float | None = None,
        period_s: float = 0.5,
        queue_wait_max_s: float = math.inf,
    ) -> Run:
        """Serve the jobs until `duration_s`; what waits longer than it may is refused."""
        loop = _Loop(self._slots, self._chunk_tokens, self._step_s, limit or self._slots)
        coming = iter(jobs)
        upcoming = next(coming, None)
        queue: deque[Job] = deque()
        decisions: list[tuple[float, LimitDecision]] = []
        arrivals, due_s = 0, period_s
        while loop.now_s < duration_s:
            while upcoming is not None and upcoming.arrived_s <= loop.now_s:
                queue.append(upcoming)
                arrivals += 1
                upcoming = next(coming, None)
            while queue and queue[0].arrived_s < loop.now_s - queue_wait_max_s:
                queue.popleft()
            loop.dispatch(queue)
            if loop.now_s >= due_s:
                signals = LimitSignals(
                    view=self._view(loop),
                    running_max=self._slots,
                    in_flight=len(loop.flying),
                    in_flight_peak=loop.peak,
                    waiting=len(queue),
                    arrivals=arrivals,
                    samples=tuple(loop.samples),
                    ttft_target_s=ttft_target_s,
                    itl_target_s=itl_target_s,
                    modality_counts=(len(loop.flying), 0, 0),
                    load_mean=loop.context / len(loop.flying) if loop.flying else 0.0,
                )
                decision = policy.update(signals, loop.now_s)
                decisions.append((loop.now_s, decision))
                loop.obey(decision)
                arrivals, due_s = 0, loop.now_s + period_s
                continue
            if loop.flying:
                loop.step()
            elif upcoming is not None:
                loop.idle_until(max(upcoming.arrived_s, loop.now_s))
            else:
                break
        return Run(loop.done, decisions, duration_s)

    def _view(self, loop: _Loop) -> ReplicaView:
        running = min(len(loop.flying), self._slots)
        usage = busy = None
        if self._kv_tokens_max is not None:
            usage = min(1.0, loop.context / self._kv_tokens_max)
        if self._busy_running is not None:
            busy = min(1.0, running / self._busy_running)
        return ReplicaView(
            replica="engine",
            observed_s=math.floor(loop.now_s),
            running=running,
            waiting=len(loop.flying) - running,
            running_max=self._slots,
            kv_cache_usage_ratio=usage,
            kv_tokens_max=self._kv_tokens_max,
            compute_busy_ratio=busy,
        )


class _Loop:
    """The engine's state, and the sums that samples are taken from."""

    def __init__(self, slots: int, chunk_tokens: int, step_s: StepTime, limit: int) -> None:
        self.now_s = 0.0
        self.flying: list[Job] = []
        self.done: list[Job] = []
        self.samples: list[RequestSample] = []
        self.peak = 0
        self._slots, self._chunk_tokens, self._step_s = slots, chunk_tokens, step_s
        self._limit, self._prefill_max = limit, math.inf
        self._in_flight_s = self._kv_s = self._prefilled = 0.0

    @property
    def context(self) -> int:
        """Tokens in the KV cache."""
        return sum(job.prefilled + job.generated for job in self.flying)

    def obey(self, decision: LimitDecision) -> None:
        self._limit = decision.limit
        most = decision.prefill_tokens_max
        self._prefill_max = math.inf if most is None else most
        self.samples = []
        self.peak = len(self.flying)

    def idle_until(self, now_s: float) -> None:
        self.now_s = now_s

    def dispatch(self, queue: deque[Job]) -> None:
        prefilling = sum(job.prompt_tokens for job in self.flying if job.first_s is None)
        while queue and len(self.flying) < self._limit:
            job = queue[0]
            if prefilling and prefilling + job.prompt_tokens > self._prefill_max:
                break
            prefilling += job.prompt_tokens
            job.started_s = self.now_s
            self.flying.append(queue.popleft())
        self.peak = max(self.peak, len(self.flying))

    def step(self) -> None:
        """One step: it takes what it takes, and then the tokens are there."""
        batch = self.flying[: self._slots]
        decoding = [job for job in batch if job.prefilled == job.prompt_tokens]
        budget = max(0, self._chunk_tokens - len(decoding))
        prefilled = 0
        advanced: list[Job] = []
        for job in batch:
            if job.prefilled < job.prompt_tokens and budget > 0:
                chunk = min(budget, job.prompt_tokens - job.prefilled)
                job.prefilled += chunk
                prefilled += chunk
                budget -= chunk
                if job.prefilled == job.prompt_tokens:
                    advanced.append(job)
        kv_tokens = sum(job.prefilled + job.generated for job in decoding)
        took_s = self._step_s(len(decoding), kv_tokens, prefilled)
        self.now_s += took_s
        self._in_flight_s += took_s * len(self.flying)
        self._kv_s += took_s * kv_tokens
        self._prefilled += prefilled
        for job in decoding:
            job.gaps_s.append(self.now_s - job.last_s)
            job.generated += 1
            job.last_s = self.now_s
        for job in advanced:
            job.first_s = job.last_s = self.now_s
            job.generated = 1
            job.mark = (self._in_flight_s, self._kv_s, self._prefilled)
        for job in self._ended():
            self.flying.remove(job)
            self.done.append(job)
            if job.first_s is not None and job.generated > 1:
                self.samples.append(self._sample(job, job.first_s))

    def _ended(self) -> Iterator[Job]:
        return iter([job for job in self.flying if job.generated >= job.output_tokens])

    def _sample(self, job: Job, first_s: float) -> RequestSample:
        in_flight_s, kv_s, prefilled = job.mark
        took_s, steps = self.now_s - first_s, job.generated - 1
        return RequestSample(
            prompt_tokens=job.prompt_tokens,
            output_tokens=job.generated,
            stream=True,
            ttft_s=job.ttft_s,
            service_ttft_s=first_s - job.started_s,
            itl_p99_s=job.itl_p99_s,
            step_s=took_s / steps,
            running_mean=(self._in_flight_s - in_flight_s) / took_s,
            kv_tokens_mean=(self._kv_s - kv_s) / took_s,
            prefill_tokens_per_step=(self._prefilled - prefilled) / steps,
        )
