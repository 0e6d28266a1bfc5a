"""run_arms(): load on two arms in turn or at once, pair of slots by pair, until one says stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from mileage.core.errors import MileageError
from mileage.loadgen.arms_fault import fault_of
from mileage.loadgen.arms_slot import Slot, washed
from mileage.loadgen.arms_slots import Arm, ArmCalls, Mode, Portions, both, orders
from mileage.loadgen.arms_switch import ArmSwitch, until_ready
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.call_record import CallRecord
from mileage.measure.server_use import ServerUse

__all__ = ["ArmsOptions", "ArmsRun", "Observe", "run_arms"]

_ARMS: Final[tuple[Arm, Arm]] = ("a", "b")
_PLACES: Final[tuple[Literal[0, 1], ...]] = (0, 1)


class ArmsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the arms take turns. `load` says how calls are sent; its phases are those of a slot."""

    mode: Mode
    load: RunOptions
    pairs_max: int
    wash_out_requests: int = 0
    """Closed loop: so many requests at the beginning of each slot count in no figure."""
    seed: int = 0
    ready_timeout_s: float = 300.0


class ArmsRun(msgspec.Struct, kw_only=True):
    """What an A/B run gave: whole pairs only, each with two slots."""

    slots: list[Slot]
    pairs: int = 0
    rounds: int = 0
    """How often the workload began anew."""
    stopped: bool = False
    """By its user."""
    error: str | None = None
    """Why it ended early."""
    restore_error: str | None = None
    """Why the settings from before could not be put back."""


class Observe(Protocol):
    """Tells what the server of an arm used in a window of time.monotonic() that has passed."""

    def __call__(self, arm: Arm, start_s: float, end_s: float, /) -> ServerUse | None: ...


async def run_arms(
    portions: Portions,
    calls: Mapping[Arm, ArmCalls],
    targets: Mapping[Arm, Target],
    options: ArmsOptions,
    *,
    switch: ArmSwitch | None = None,
    observe: Observe | None = None,
    is_enough: Callable[[ArmsRun], bool] = lambda run: False,
    on_slot: Callable[[int, str], None] | None = None,
    on_record: Callable[[CallRecord], None] | None = None,
    stop: asyncio.Event | None = None,
) -> ArmsRun:
    """Send each stretch of the workload to both arms; ask after each pair whether that is enough.

    Interleaved, a slot begins with the arm's settings in force and nothing of the other arm in
    flight: the answers of each slot are waited for. What `switch` changed is put back whatever
    happens. A pair of which a part is missing is left out; why it is, is in the result.
    """
    run = ArmsRun(slots=[])
    pairs = _Pairs(
        portions,
        calls,
        targets,
        options,
        switch=switch,
        observe=observe,
        on_slot=on_slot,
        on_record=on_record,
        stop=stop or asyncio.Event(),
    )
    try:
        for _, order in zip(range(options.pairs_max), orders(options.seed), strict=False):
            slots = await pairs.run(run.pairs, order)
            if slots is None:
                run.stopped = True
                break
            run.slots += slots
            run.pairs += 1
            if (fault := fault_of(slots, run.slots)) is not None:
                run.error = fault
                break
            if is_enough(run):
                break
    except MileageError as error:
        run.error = str(error)
    finally:
        run.rounds = portions.rounds
        if switch is not None:
            run.restore_error = await _restored(switch)
    return run


async def _restored(switch: ArmSwitch) -> str | None:
    """Put back what was before: also while the task is being cancelled."""
    restoring = asyncio.ensure_future(switch.restore())
    while not restoring.done():
        with contextlib.suppress(asyncio.CancelledError, MileageError):
            await asyncio.shield(restoring)
    error = restoring.exception()
    return None if error is None else str(error)


class _Pairs:
    """Runs one pair after the other."""

    def __init__(
        self,
        portions: Portions,
        calls: Mapping[Arm, ArmCalls],
        targets: Mapping[Arm, Target],
        options: ArmsOptions,
        *,
        switch: ArmSwitch | None,
        observe: Observe | None,
        on_slot: Callable[[int, str], None] | None,
        on_record: Callable[[CallRecord], None] | None,
        stop: asyncio.Event,
    ) -> None:
        self._portions, self._calls, self._targets = portions, calls, targets
        self._options, self._switch, self._observe = options, switch, observe
        self._on_slot, self._on_record, self._stop = on_slot, on_record, stop

    async def run(self, pair: int, order: tuple[Arm, Arm]) -> list[Slot] | None:
        """Both slots of a pair; None where the run was stopped before they were whole."""
        portion = self._portions.take()
        if self._options.mode == "mirrored":
            a = self._calls["a"].of(portion, pair=pair, target=0)
            b = self._calls["b"].of(portion, pair=pair, target=1)
            calls = both(a, b, self._options.seed + pair)
            targets = [self._targets["a"], self._targets["b"]]
            self._tell(pair, "a and b")
            began_s = time.monotonic()
            load = await self._send(calls, targets)
            if load.stopped:
                return None
            return [self._slot(pair, arm, None, began_s, load, a, None) for arm in _ARMS]
        slots = []
        for place, arm in zip(_PLACES, order, strict=True):
            applied = await self._switched(arm)
            calls = self._calls[arm].of(portion, pair=pair)
            self._tell(pair, arm)
            began_s = time.monotonic()
            load = await self._send(calls, [self._targets[arm]])
            if load.stopped:
                return None
            slots.append(self._slot(pair, arm, place, began_s, load, calls, applied))
        return slots

    async def _switched(self, arm: Arm) -> str | None:
        if self._switch is None or self._stop.is_set():
            return None
        applied = await self._switch.to(arm)
        target = self._targets[arm]
        await until_ready(
            target.url.rstrip("/"),
            authorization=target.authorization_value,
            timeout_s=self._options.ready_timeout_s,
        )
        return applied

    async def _send(self, calls: list[PlannedCall], targets: list[Target]) -> LoadRun:
        return await run_load(
            calls, targets, self._options.load, on_record=self._on_record, stop=self._stop
        )

    def _tell(self, pair: int, arms: str) -> None:
        if self._on_slot is not None:
            self._on_slot(pair, arms)

    def _slot(
        self,
        pair: int,
        arm: Arm,
        order: Literal[0, 1] | None,
        began_s: float,
        load: LoadRun,
        calls: list[PlannedCall],
        applied: str | None,
    ) -> Slot:
        use = None
        load = washed(load, self._options.wash_out_requests)
        if self._observe is not None and load.end_s > load.start_s:
            zero_s = load.zero_monotonic_s
            use = self._observe(arm, zero_s + load.start_s, zero_s + load.end_s)
        own = [record for record in load.records if record.arm == arm]
        return Slot(
            pair=pair,
            arm=arm,
            order=order,
            began_s=began_s,
            load=replace(load, records=own),
            planned=self._planned(load, calls),
            applied=applied,
            use=use,
        )

    def _planned(self, load: LoadRun, calls: list[PlannedCall]) -> int:
        if self._options.load.mode == "closed":  # without a schedule
            return max(0, len(calls) - self._options.wash_out_requests)
        return sum(load.start_s <= call.scheduled_s < load.end_s for call in calls)
