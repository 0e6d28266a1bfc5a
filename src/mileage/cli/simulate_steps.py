"""Steps of simulated engines as the ledger has them: a file, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from mileage.cli.whole_file import whole_file
from mileage.core.errors import ConfigError
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.step_record import step_record
from mileage.sim.step_log import StepPart, Stretch

__all__ = ["StepFile", "engine_steps", "step_file"]

_NS: Final = 1e9


def engine_steps(
    replica: str, stretch: Stretch, *, started_at_utc_ns: int = 0, after_ns: int = 0
) -> Iterator[EngineStep]:
    """The steps of a stretch, in order; they begin where the one before ended.

    `started_at_utc_ns`: when the simulation's time was 0. `after_ns`: no step begins before that
    time, by which the stretch before has ended: rounding could make them overlap.
    """
    ends_ns = started_at_utc_ns + np.rint(stretch.ends_s * _NS).astype(np.int64)
    begin_ns = max(after_ns, started_at_utc_ns + round(stretch.begun_s * _NS))
    for step, end_ns in enumerate(ends_ns.tolist()):
        uses = tuple(map(_use, stretch.parts_of(step)))
        duration_ns = max(0, end_ns - begin_ns)
        yield EngineStep(replica, begin_ns, duration_ns, uses)
        begin_ns += duration_ns


def _use(part: StepPart) -> StepUse:
    return StepUse(
        part.request_id,
        part.prefill_tokens,
        part.decode_tokens,
        part.context_tokens,
        part.recomputed_tokens,
    )


class StepFile:
    """A Watcher that writes every step into a file (`mileage.storage.step_file`).

    Those of one replica are in the order of time, and do not overlap. Requests are numbered from 1,
    in the order of the trace.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._write = stream.write
        self._ended_ns: dict[str, int] = {}
        self.steps = 0

    def dispatched(self, request_id: int, replica: str, now_s: float) -> None:
        """It is in the steps that follow."""

    def stepped(self, replica: str, stretch: Stretch) -> None:
        """Steps of an engine are over."""
        for step in engine_steps(replica, stretch, after_ns=self._ended_ns.get(replica, 0)):
            self._write(step_record(step))
            self._ended_ns[replica] = step.started_at_utc_ns + step.duration_ns
            self.steps += 1


@contextmanager
def step_file(path: Path | None, how: str) -> Iterator[StepFile | None]:
    """What `--steps` asks for, there as a whole when the block ends; None where it does not.

    `how`: of `--path`. Raises ConfigError where steps would not be seen, or the file not written.
    """
    if path is None:
        yield None
        return
    if how == "fast":
        raise ConfigError("--steps", str(path), "--path python or auto: compiled code shows none")
    with whole_file(path, key="--steps") as file:
        yield StepFile(file)
