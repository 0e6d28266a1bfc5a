"""Simulation: the very controller of the gateway before simulated engines, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, TypeAlias

import msgspec

from mileage.control.config import ControlConfig
from mileage.control.controller import Controller
from mileage.core.actions import Action, AskBudget, Dispatch, Join, Reject, ReturnBudget, WakeAt
from mileage.core.errors import ConfigError
from mileage.core.events import (
    Arrived,
    Cancelled,
    Event,
    Finished,
    FirstToken,
    Observed,
    ReplicaDown,
    ReplicaUp,
    Woke,
)
from mileage.sim.arrivals import checked, request_of, units_of
from mileage.sim.clients import Client, Clients
from mileage.sim.event_queue import EventQueue
from mileage.sim.node import Node, ReplicaSpec
from mileage.sim.scaling import DRAINING, STARTING, UP, Scaler, Scaling, fleet_view
from mileage.sim.sequence import Sequence as EngineSequence
from mileage.sim.series import Series
from mileage.sim.shared_gpu import share_gpus
from mileage.sim.sim_config import SimConfig
from mileage.sim.sim_result import SimResult
from mileage.sim.step_log import Watcher
from mileage.sim.treasury_desk import TreasuryDesk
from mileage.workload.trace_request import TraceRequest

__all__ = ["SimConfig", "SimResult", "Simulation", "split_random"]

_SCALE: Final = 0
_WAKE: Final = 1
_TELL: Final = 2
_PATIENCE: Final = 3
_SCRAPE: Final = 4
_STEP: Final = 5
"""Priorities of what happens at one time; arrivals come before all of it, and the end of a step
last: what comes at that moment takes part in the next step."""
_PROGRESS_EVERY: Final = 1024

Progress: TypeAlias = Callable[[int], object]
_Payload: TypeAlias = Node | Client | Event | int | None


class Simulation:
    """One run of a trace through a fleet: `run` it once.

    The controller is told what a gateway would tell it, at the same moments: arrivals, first
    tokens, completed answers with their counts and their own gaps, a view of each replica every
    `scrape_interval_s`, and the end of a time that it asked for. The network costs no time.
    Everything depends on the arguments and the seed alone. `scaler` is asked how many replicas are
    to be there every `scaling.interval_s`, beside what the schedule says. `watcher` is told of all
    steps.
    """

    def __init__(
        self,
        replicas: Sequence[ReplicaSpec],
        *,
        control: ControlConfig,
        config: SimConfig | None = None,
        scaler: Scaler | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        names = [spec.name for spec in replicas]
        if not names or len(set(names)) != len(names):
            raise ConfigError("replicas", names, "one or more names, each of them once")
        self._config = config = config or SimConfig()
        random = Random(config.seed)  # noqa: S311 (no secret)
        self._errors = split_random(random)
        control = msgspec.structs.replace(
            control, replica_gpus={spec.name: spec.gpus for spec in replicas}
        )
        self.controller = Controller(
            names,
            config=control,
            random=split_random(random),
            in_flight_max=config.in_flight_max,
        )
        self._specs = tuple(replicas)
        self._nodes = [
            Node(spec, index, split_random(random)) for index, spec in enumerate(replicas)
        ]
        share_gpus(self._specs, self._nodes)
        self._watcher = watcher
        if watcher is not None:
            for node in self._nodes:
                node.watch(watcher)
        self._by_name = {node.name: node for node in self._nodes}
        self._model = replicas[0].models[0]
        self._by_blocks = control.routing.policy == "prefix"
        self._queue: EventQueue[_Payload] = EventQueue()
        self._clients = Clients()
        self._calls: dict[int, Client] = {}
        """Of each sequence in an engine the request whose call it belongs to."""
        self._wake_s = math.inf
        self._now_s = 0.0
        has_budgets = any(tenant.budgets for tenant in control.tenants.values())
        self._desk = TreasuryDesk(control.tenants) if has_budgets else None
        if scaler is not None and config.scaling is None:
            raise ConfigError("sim.scaling", None, "settings for the scaling function")
        self._scaler = scaler
        self._scaling = None
        if config.scaling is not None:
            self._scaling = Scaling(config.scaling, len(replicas))

    def run(
        self, requests: Iterable[TraceRequest], *, progress: Progress | None = None
    ) -> SimResult:
        """Simulate until every request has ended. `progress` is called with their number so far.

        Raises TraceError for a request that no trace may have, and RuntimeError where the
        controller failed: results without its policies would be of something else.
        """
        arrivals = checked(requests)
        queue, waiting = self._queue, self._clients.waiting
        following = next(arrivals, None)
        start_s = 0.0 if following is None else following.arrived_s
        self._now_s = self._clients.last_s = start_s
        series = Series(start_s=start_s, width_s=self._config.scrape_interval_s)
        if self._scaling is not None:
            self._open_scaling(self._scaling, start_s)
        for node, spec in zip(self._nodes, self._specs, strict=True):
            if self._state(node) == UP:
                self._tell(ReplicaUp(spec.name, spec.models))
        if following is not None:
            queue.push(start_s, _SCRAPE, None)
        count = 0
        while True:
            if following is not None and following.arrived_s <= queue.next_s:
                self._now_s = following.arrived_s
                self._arrive(following)
                following = next(arrivals, None)
                count += 1
                if progress is not None and count % _PROGRESS_EVERY == 0:
                    progress(count)
            elif following is not None or waiting:
                self._next_event(series)
            else:
                break
        if self.controller.failure is not None:
            raise RuntimeError(f"the controller failed: {self.controller.failure}")
        gpu_s = None
        if self._scaling is not None:
            on_s = self._scaling.on_s(self._clients.last_s)
            gpu_s = sum(s * spec.gpus for s, spec in zip(on_s, self._specs, strict=True))
        return SimResult(
            outcomes=self._clients.outcomes,
            rejections=self._clients.rejections,
            replicas=tuple(node.totals() for node in self._nodes),
            series=series,
            start_s=start_s,
            duration_s=self._clients.last_s - start_s,
            gpus=sum(spec.gpus for spec in self._specs),
            gpu_s=gpu_s,
        )

    # --- what happens -------------------------------------------------------------------------

    def _next_event(self, series: Series) -> None:
        time_s, kind, ticket, payload = self._queue.pop()
        self._now_s = time_s
        if kind == _STEP:
            assert isinstance(payload, Node)
            if payload.ticket == ticket:
                self._step(payload)
        elif kind == _SCRAPE:
            self._scrape(series)
            self._queue.push(time_s + self._config.scrape_interval_s, _SCRAPE, None)
        elif kind == _WAKE:
            if time_s >= self._wake_s:
                self._wake_s = math.inf
                self._tell(Woke())
        elif kind == _PATIENCE:
            assert isinstance(payload, Client)
            self._lose_patience(payload)
        elif kind == _SCALE:
            assert not isinstance(payload, Client | Event)
            self._scale(payload, ticket, series)
        elif payload is not None:
            assert not isinstance(payload, Node | Client | int)
            self._tell(payload)

    def _arrive(self, trace: TraceRequest) -> None:
        clients, config = self._clients, self._config
        row = clients.outcomes.open(trace.arrived_s, trace.prompt_tokens)
        model = self._model if trace.model is None else trace.model
        ratio, blocks = config.prompt_error_ratio, self._by_blocks
        request = request_of(trace, row + 1, model, ratio, self._errors, blocks=blocks)
        sequence = EngineSequence(row + 1, trace.prompt_tokens, trace.output_tokens)
        sequence.arrived_s, sequence.adapter = trace.arrived_s, trace.adapter
        client = clients.waiting[row + 1] = Client(request, row, sequence, trace)
        if config.patience_s is not None:
            self._queue.push(self._now_s + config.patience_s, _PATIENCE, client)
        self._tell(Arrived(request))

    def _step(self, node: Node) -> None:
        engine, now_s = node.engine, self._now_s
        engine.finish_steps(now_s)
        calls = self._calls
        for sequence in engine.first:
            call = calls.get(sequence.id)  # None: its client has left
            if call is not None and call.request.stream and sequence.output_tokens:
                self._tell(FirstToken(sequence.id))
        for sequence in engine.done:
            call = calls.pop(sequence.id, None)
            if call is not None:
                self._complete(call, node)
        engine.begin(now_s)
        for other in () if node.shared is None else node.shared.look(now_s):
            if other is not node:
                other.ticket = self._queue.push(other.engine.due_s, _STEP, other)
        if engine.due_s < math.inf:
            node.ticket = self._queue.push(engine.due_s, _STEP, node)
        elif self._state(node) == DRAINING:
            self._drained(node)

    def _complete(self, leader: Client, node: Node) -> None:
        """One of the sequences of a call is complete: of most calls the only one."""
        leader.open_calls -= 1
        if leader.open_calls:
            return
        request, sequence = leader.request, leader.sequence
        prompt_tokens, cached_tokens = sequence.prompt_tokens, max(0, sequence.cached_tokens)
        for other in leader.called():
            prompt_tokens += other.sequence.prompt_tokens
            cached_tokens += max(0, other.sequence.cached_tokens)
        itl_p99_s = itl_mean_s = None
        if request.stream and sequence.output_tokens > 1:
            itl_p99_s, itl_mean_s = sequence.itl_p99_s, sequence.itl_mean_s
        event = Finished(
            request.id,
            prompt_tokens,
            cached_tokens if node.engine.config.prefix_cache else None,
            sequence.output_tokens,
            itl_p99_s,
            itl_mean_s,
        )
        self._clients.answered(leader, self._now_s)
        self._tell(event)
        self.controller.spend_of(request.id)  # nobody else asks for it

    def _lose_patience(self, client: Client) -> None:
        """A client leaves where it has no token yet; with the last one ends the generation."""
        request, clients = client.request, self._clients
        if request.id not in clients.waiting:
            return
        leader = client if client.leader is None else client.leader
        if not math.isnan(leader.sequence.first_token_s):
            return
        clients.left(client, self._now_s)
        if not leader.others_wait(clients.waiting):
            for sequence in (leader.sequence, *(each.sequence for each in leader.called())):
                if self._calls.pop(sequence.id, None) is not None:
                    self._abort(sequence, self._nodes[leader.replica])
        self._tell(Cancelled(request.id))

    def _abort(self, sequence: EngineSequence, node: Node) -> None:
        if node.engine.abort(sequence, self._now_s):
            node.ticket = self._queue.push(node.engine.due_s, _STEP, node)

    def _scrape(self, series: Series) -> None:
        now_s = self._now_s
        running = waiting = 0
        usage = busy = 0.0
        nodes = [node for node in self._nodes if self._state(node) in (UP, DRAINING)]
        for node in nodes:
            busy += node.busy_ratio(now_s)
            view = node.observe(now_s)
            running += view.running or 0
            waiting += view.waiting or 0
            usage += view.kv_cache_usage_ratio or 0.0
            self._tell(Observed(view))
        if self._desk is not None:
            self._talk(())
        count = max(1, len(nodes))
        states = self.controller.replica_states()
        limit = float(sum(state.limit or 0 for state in states))
        held = self.controller.governor.held
        series.add(now_s, (running, waiting, held, limit, usage / count, busy / count))

    # --- replicas that come and go ------------------------------------------------------------

    def _state(self, node: Node) -> int:
        return UP if self._scaling is None else self._scaling.states[node.index]

    def _open_scaling(self, scaling: Scaling, start_s: float) -> None:
        scaling.begin(start_s)
        for at_s, wanted in scaling.config.schedule:
            if at_s > 0.0:
                self._queue.push(start_s + at_s, _SCALE, wanted)
        if self._scaler is not None:
            self._queue.push(start_s, _SCALE, None)

    def _scale(self, what: Node | int | None, ticket: int, series: Series) -> None:
        """A time of the schedule, the end of a start, or a question to the scaling function."""
        scaling, now_s = self._scaling, self._now_s
        assert scaling is not None
        if isinstance(what, Node):
            if scaling.states[what.index] == STARTING and what.start_ticket == ticket:
                scaling.states[what.index] = UP
                self._tell(ReplicaUp(what.name, self._specs[what.index].models))
            return
        if what is None:
            assert self._scaler is not None
            held = self.controller.governor.held
            engines = [(n.engine.members, scaling.states[n.index]) for n in self._nodes]
            what = self._scaler(fleet_view(engines, now_s, series.start_s, held))
            self._queue.push(now_s + scaling.config.interval_s, _SCALE, None)
        for index in scaling.want(what, now_s):
            node, state = self._nodes[index], scaling.states[index]
            if state == STARTING:
                at_s = now_s + scaling.config.start_s
                node.start_ticket = self._queue.push(at_s, _SCALE, node)
            elif state == UP:
                self._tell(ReplicaUp(node.name, self._specs[index].models))
            elif state == DRAINING:
                self._tell(ReplicaDown(node.name, "scaled down"))
                if node.engine.due_s == math.inf:
                    self._drained(node)

    def _drained(self, node: Node) -> None:
        assert self._scaling is not None
        self._scaling.off(node.index, self._now_s)
        node.engine.restart()

    # --- the controller -----------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        for action in self.controller.handle(event, self._now_s):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Dispatch):
            self._dispatch(action.request_id, self._by_name[action.replica])
        elif isinstance(action, WakeAt):
            if action.at_s < self._wake_s:
                self._wake_s = max(self._now_s, action.at_s)
                self._queue.push(self._wake_s, _WAKE, None)
        elif isinstance(action, Reject):
            client = self._clients.waiting.get(action.request_id)
            if client is not None:
                self._clients.rejected(client, action.reason, self._now_s)
        elif isinstance(action, Join):
            client = self._clients.waiting[action.request_id]
            client.join(self._clients.waiting[action.leader_id], action.kind, self._now_s)
        elif isinstance(action, AskBudget | ReturnBudget):
            self._talk((action,))

    def _talk(self, actions: tuple[AskBudget | ReturnBudget, ...]) -> None:
        """The treasury answers at once, and after all that is being done about this event."""
        assert self._desk is not None
        for event in self._desk.heard(self.controller.intake.spends(), actions, self._now_s):
            self._queue.push(self._now_s, _TELL, event)

    def _dispatch(self, request_id: int, node: Node) -> None:
        """All sequences of the call come to the engine; it refuses what can never fit."""
        leader = self._clients.waiting[request_id]
        leader.replica, engine = node.index, node.engine
        members = [leader, *leader.called()]
        block_tokens = engine.config.block_tokens if engine.config.prefix_cache else 0
        for client in members:
            sequence, trace = client.sequence, client.trace
            if trace.prefix_blocks and block_tokens:
                sequence.keys, sequence.unit_tokens = units_of(trace, block_tokens)
            if not engine.fits(sequence):
                # It is answered with an error of the client's, which says nothing of the engine.
                self._clients.failed(leader, self._now_s)
                self._queue.push(self._now_s, _TELL, Finished(request_id))
                return
        leader.open_calls = len(members)
        for client in members:
            self._calls[client.sequence.id] = leader
            if self._watcher is not None:
                self._watcher.dispatched(client.sequence.id, node.name, self._now_s)
            if engine.add(client.sequence, self._now_s):
                node.ticket = self._queue.push(engine.due_s, _STEP, node)


def split_random(random: Random) -> Random:
    """Another generator, so that one who draws more does not change what others draw."""
    return Random(random.getrandbits(64))  # noqa: S311 (no secret)
