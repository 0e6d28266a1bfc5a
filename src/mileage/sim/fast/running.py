"""What the begin and the end of steps have in common, compiled: who runs, and who waits."""

from __future__ import annotations

from mileage.sim.fast import steps
from mileage.sim.fast.jit import inlined, jit
from mileage.sim.fast.layout import Record, Records

__all__ = ["count_waiting", "stop_filling", "stop_running", "took_s"]

stretch_s = steps.stretch_s


@jit
def took_s(engine: Record, count: int) -> float:
    """Seconds of so many of the steps that are planned."""
    return float(stretch_s(count, engine.c1, engine.d1, engine.turn, engine.c2, engine.d2))


@inlined
def count_waiting(engine: Record, now_s: float) -> None:
    """Bring the integral of those that wait up to date."""
    engine.waiting_s += engine.waiting * (now_s - engine.changed_s)
    engine.changed_s = now_s


@jit
def stop_running(engine: Record, seqs: Records, sequence: Record) -> None:
    """It runs no longer."""
    before, after = sequence.run_before, sequence.run_after
    if before >= 0:
        seqs[before].run_after = after
    else:
        engine.run_first = after
    if after >= 0:
        seqs[after].run_before = before
    else:
        engine.run_last = before
    engine.running -= 1


@jit
def stop_filling(engine: Record, seqs: Records, sequence: Record) -> None:
    """It is in the middle of its prompt no longer."""
    before, after = sequence.fill_before, sequence.fill_after
    if before >= 0:
        seqs[before].fill_after = after
    else:
        engine.fill_first = after
    if after >= 0:
        seqs[after].fill_before = before
    else:
        engine.fill_last = before
    engine.filling -= 1
