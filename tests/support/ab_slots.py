"""A/B runs as if they had been made: slots of records that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mileage.loadgen.arms_run import ArmsRun
from mileage.loadgen.arms_slot import Slot
from mileage.loadgen.arms_slots import Arm
from mileage.loadgen.generator_use import GeneratorUse
from mileage.measure.call_record import CallRecord
from tests.support.bench_runs import LIMITED_USE, failed, load_run, stream

__all__ = ["answers", "arms_run", "nothing_but", "slot"]

Records = Callable[[int], list[CallRecord]]
"""What an arm answers in a pair."""


def answers(took_s: float, *, count: int = 20, spread: float = 0.02) -> Records:
    """So many streams, of which the first token comes after about `took_s`; each pair a bit
    different, as pairs are."""

    def of(pair: int) -> list[CallRecord]:
        shift = 1.0 + spread * ((7 * pair) % 5 - 2)
        return [stream(n / 10, ttft_s=took_s * shift, index=n) for n in range(count)]

    return of


def nothing_but(outcome: str, error: str, *, count: int = 20) -> Records:
    """Failures."""
    return lambda pair: [failed(n / 10, outcome, error, index=n) for n in range(count)]


def slot(
    arm: Arm,
    records: list[CallRecord],
    *,
    pair: int = 0,
    order: int | None = 0,
    limited: bool = False,
    **more: Any,
) -> Slot:
    """A slot of ten seconds."""
    generator = LIMITED_USE if limited else GeneratorUse()
    return Slot(
        pair=pair,
        arm=arm,
        order=order,  # type: ignore[arg-type]
        began_s=20.0 * pair + 10.0 * (order or 0),
        load=load_run(records, generator=generator),
        planned=len(records),
        **more,
    )


def arms_run(
    a: Records, b: Records, *, pairs: int = 6, limited: tuple[int, ...] = (), **changes: Any
) -> ArmsRun:
    """A run of so many pairs, in which the arms took turns at being first."""
    slots = []
    for pair in range(pairs):
        turned = pair % 2
        shared: dict[str, Any] = {"pair": pair, "limited": pair in limited}
        slots.append(slot("a", a(pair), order=turned, **shared))
        slots.append(slot("b", b(pair), order=1 - turned, **shared))
    return ArmsRun(slots=slots, pairs=pairs, **changes)
