"""What a worker reports of itself: its totals, its replicas, and what its governor does."""

from __future__ import annotations

import os
import time

from mileage.control.controller import Controller
from mileage.control.replicas import ReplicaState
from mileage.core.slo import SloConfig
from mileage.gateway.driver import Driver
from mileage.gateway.messages import GovernorReport, ReplicaStatus, Report
from mileage.gateway.pause_watch import LongPause
from mileage.measure.prompt_likeness import Likeness

__all__ = ["state_report"]


def state_report(
    driver: Driver,
    *,
    connections: int,
    draining: bool,
    config_version: int,
    pauses: tuple[LongPause, ...] = (),
    likeness: Likeness | None = None,
) -> Report:
    """The present state of a worker; what its metrics say of the present is brought up to date."""
    metrics, controller = driver.metrics, driver.controller
    states = controller.replica_states()
    governor = _governor(controller, metrics.targets.slo)
    limits = _limits(controller, governor, states)
    metrics.connections.set(connections)
    metrics.in_flight.set(len(driver.exchanges))
    metrics.draining.set(int(draining))
    metrics.replica_in_flight.values.clear()  # of replicas that are gone nothing is told
    for state in states:
        metrics.replica_in_flight.set(state.in_flight, (state.name,))
    if governor.state is not None:
        metrics.governor.take(governor.state, states, limits, failed=controller.failure is not None)
    driver.snapshot_ledger()
    return Report(
        pid=os.getpid(),
        at_s=time.monotonic(),
        connections=connections,
        in_flight=len(driver.exchanges),
        draining=draining,
        ledger_ok=driver.ledger_ok,
        families=metrics.snapshot(),
        replicas=[
            ReplicaStatus(
                name=state.name,
                state=state.state,
                models=tuple(state.models),
                in_flight=state.in_flight,
                reason=state.reason,
                limit=limits.get(state.name),
                limit_reason=state.limit_reason if state.name in limits else None,
                policy_failed=state.policy_failed,
                gpu_weight=state.gpu_weight,
                sent_total=state.sent,
            )
            for state in states
        ],
        config_version=config_version,
        governor=governor,
        pauses=pauses,
        likeness=likeness,
        adapter_uses=driver.take_adapter_uses(),
        waiting=controller.loads.waiting(),
    )


def _governor(controller: Controller, slo: SloConfig) -> GovernorReport:
    """What the governor does; that its state cannot be told must not hide all the rest."""
    try:
        state = controller.governor.state()
    except Exception as error:
        failure = controller.failure or f"its state cannot be told: {type(error).__name__}: {error}"
        return GovernorReport(state=None, slo=slo, failure=failure)
    return GovernorReport(state=state, slo=slo, failure=controller.failure)


def _limits(
    controller: Controller, governor: GovernorReport, states: tuple[ReplicaState, ...]
) -> dict[str, float]:
    """This worker's parts of the limits that hold, or that the mode observe would keep."""
    state = governor.state
    if state is None or state.mode == "off" or governor.failure is not None:
        return {}
    ratio = controller.governor.share_ratio
    return {
        each.name: each.limit * ratio
        for each in states
        if each.limit is not None and each.state != "down"
    }
