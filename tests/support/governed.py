"""A governed fleet in virtual time: the real controller before iteration-level engines."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from benchmarks.support.step_core import CoreConfig, StepCore
from benchmarks.support.step_core import Sequence as EngineSequence
from benchmarks.support.step_model import StepModel
from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, Dispatch, Hold, Join, Reject, SetLimit, WakeAt
from mileage.core.events import Arrived, Cancelled, Event, Finished, FirstToken, ReplicaUp, Woke
from mileage.core.request import Request
from mileage.measure.quantiles import quantile

__all__ = ["Ended", "World"]


@dataclass
class Ended:
    """What became of one request."""

    request: Request
    output_tokens: int
    dispatched_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    refusal: Reject | None = None
    refused_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.request.arrived_s

    @property
    def itl_p99_s(self) -> float | None:
        times = self.token_times_s
        return quantile([b - a for a, b in pairwise(times)], 0.99)


class World:
    """Runs requests through a controller and engines; time is what the heap of events says."""

    def __init__(
        self,
        config: ControlConfig,
        model: StepModel,
        *,
        replicas: Sequence[str] = ("a",),
        running_max: int = 256,
        step_tokens_max: int = 512,
        kv_blocks: int = 100_000,
    ) -> None:
        core = CoreConfig(
            model=model,
            running_max=running_max,
            step_tokens_max=step_tokens_max,
            kv_blocks=kv_blocks,
            noise_ratio=0.0,
        )
        self.controller = Controller(replicas, config=config, random=Random(1))
        self.engines = {name: StepCore(core, Random(2)) for name in replicas}
        self.now_s = 0.0
        self.requests: dict[int, Ended] = {}
        self.limits: list[tuple[float, SetLimit]] = []
        self.joins: dict[int, int] = {}
        self._sequences: dict[int, EngineSequence] = {}
        self._owner: dict[EngineSequence, tuple[int, str]] = {}
        self._stepping: set[str] = set()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._next_id = 1
        for name in replicas:
            self.tell(ReplicaUp(name, ("m",)))

    # --- what a test asks for -----------------------------------------------------------------

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time_s, self._order, do))

    def arrive(
        self,
        time_s: float,
        *,
        prompt_tokens: int = 100,
        output_tokens: int = 20,
        tenant: str = "t",
        **fields: Any,
    ) -> int:
        """A request that will come at that time; its id."""
        request_id = self._next_id
        self._next_id += 1
        request = Request(
            id=request_id,
            tenant=tenant,
            model="m",
            arrived_s=time_s,
            prompt_tokens_estimate=prompt_tokens,
            **{
                "endpoint": "chat",
                "stream": True,
                "output_tokens_max": output_tokens,
                **fields,
            },
        )
        self.requests[request_id] = Ended(request, output_tokens)
        self.at(time_s, lambda: self.tell(Arrived(request)))
        return request_id

    def cancel(self, time_s: float, request_id: int) -> None:
        self.at(time_s, lambda: self._cancel(request_id))

    def run(self, until_s: float = float("inf")) -> None:
        while self._heap and self._heap[0][0] <= until_s:
            time_s, _, do = heapq.heappop(self._heap)
            assert time_s >= self.now_s - 1e-9
            self.now_s = max(self.now_s, time_s)
            do()
        assert self.controller.failure is None, self.controller.failure

    def goodput(self, ttft_s: float, itl_s: float | None = None) -> int:
        """Requests that met all their targets."""
        return sum(
            ended.finished_s is not None
            and ended.ttft_s is not None
            and ended.ttft_s <= ttft_s
            and (itl_s is None or (ended.itl_p99_s or 0.0) <= itl_s)
            for ended in self.requests.values()
        )

    def refused(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for ended in self.requests.values():
            if ended.refusal is not None:
                found[ended.refusal.reason] = found.get(ended.refusal.reason, 0) + 1
        return found

    def tell(self, event: Event) -> None:
        for action in self.controller.handle(event, self.now_s):
            self._perform(action)

    # --- the host -----------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        if isinstance(action, Dispatch):
            self._dispatch(action.request_id, action.replica)
        elif isinstance(action, Reject):
            ended = self.requests[action.request_id]
            assert ended.refusal is None
            assert ended.finished_s is None
            ended.refusal, ended.refused_s = action, self.now_s
        elif isinstance(action, WakeAt):
            self.at(max(self.now_s, action.at_s), lambda: self.tell(Woke()))
        elif isinstance(action, SetLimit):
            self.limits.append((self.now_s, action))
        elif isinstance(action, Join):
            self.joins[action.request_id] = action.leader_id
        else:
            assert isinstance(action, Hold), action

    def _dispatch(self, request_id: int, replica: str) -> None:
        ended = self.requests[request_id]
        assert ended.dispatched_s is None
        ended.dispatched_s = self.now_s
        request = ended.request
        sequence = EngineSequence(
            request.prompt_tokens_estimate, ended.output_tokens, self.now_s, request.tenant
        )
        self._sequences[request_id] = sequence
        self._owner[sequence] = (request_id, replica)
        self.engines[replica].add(sequence)
        if replica not in self._stepping:
            self._begin(replica)

    def _cancel(self, request_id: int) -> None:
        ended = self.requests[request_id]
        if ended.finished_s is None and ended.refusal is None:
            sequence = self._sequences.get(request_id)
            if sequence is not None:
                self.engines[self._owner[sequence][1]].abort(sequence)
            self.tell(Cancelled(request_id))

    def _begin(self, replica: str) -> None:
        step = self.engines[replica].begin(self.now_s)
        if step is None:
            self._stepping.discard(replica)
            return
        self._stepping.add(replica)
        self.at(self.now_s + step.duration_s, lambda: self._end(replica))

    def _end(self, replica: str) -> None:
        for sequence in self.engines[replica].end():
            request_id, _ = self._owner[sequence]
            ended = self.requests[request_id]
            ended.token_times_s.append(self.now_s)
            if ended.first_token_s is None:
                ended.first_token_s = self.now_s
                if ended.request.stream:
                    self.tell(FirstToken(request_id))
            if sequence.done:
                ended.finished_s = self.now_s
                self.tell(
                    Finished(
                        request_id,
                        ended.request.prompt_tokens_estimate,
                        0,
                        ended.output_tokens,
                        itl_p99_s=ended.itl_p99_s,
                    )
                )
        self._stepping.discard(replica)
        self._begin(replica)
