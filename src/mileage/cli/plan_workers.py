"""Workers: the simulations of a plan on several cores, each process with a copy of all."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final

from mileage.planner.evaluator import Evaluator
from mileage.planner.figures import Figures
from mileage.planner.search import Evaluate, Task

__all__ = ["OnDone", "cores", "counted", "workers"]

OnDone = Callable[[int, int], object]
"""Told how many simulations of a round are done, and of how many."""

_CHUNK: Final = 4
"""Simulations that a process takes at a time: neighbours have step times in common."""
_evaluator: Evaluator | None = None


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def workers(evaluator: Evaluator, count: int, on_done: OnDone | None = None) -> Iterator[Evaluate]:
    """What does the simulations of a search in `count` processes; 1: in this one."""
    told = on_done or _silent
    if count == 1:
        yield lambda tasks: counted(map(evaluator.one, tasks), len(tasks), told)
        return
    # Started afresh: what the compiler and its threads hold is not copied.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _begin, (evaluator,)) as pool:

        def evaluate(tasks: Sequence[Task]) -> list[Figures]:
            chunk = max(1, min(_CHUNK, len(tasks) // count))
            return counted(pool.map(_one, tasks, chunksize=chunk), len(tasks), told)

        try:
            yield evaluate
        finally:
            pool.shutdown(cancel_futures=True)


def counted(figures: Iterator[Figures], total: int, told: OnDone) -> list[Figures]:
    """All of them, each told of as it comes."""
    found = []
    for each in figures:
        found.append(each)
        told(len(found), total)
    return found


def _begin(evaluator: Evaluator) -> None:
    global _evaluator
    _evaluator = evaluator


def _one(task: Task) -> Figures:
    assert _evaluator is not None
    return _evaluator.one(task)


def _silent(done: int, total: int) -> None:
    """Nobody asks."""
