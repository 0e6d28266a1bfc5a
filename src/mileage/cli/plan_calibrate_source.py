"""What `mileage plan calibrate` reads: a saved run, a ledger, or steps that an engine told."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.trace_records import ledger_timelines
from mileage.core.errors import ConfigError
from mileage.costmodel.fitted import StepSample
from mileage.costmodel.served import ServedRequest, served_of_timelines
from mileage.ledger.engine_step import EngineStep
from mileage.loadgen.saved_run import read_run
from mileage.planner.engine_step_samples import engine_step_samples
from mileage.planner.served_calls import served_of_calls
from mileage.storage.sqlite import DATABASE_NAME
from mileage.storage.step_file import read_steps

__all__ = ["Recorded", "read_recorded"]

_KEY: Final = "SOURCE"
_STEPS: Final = ".steps"
_EXPECTED: Final = (
    "a run of mileage bench --save, a ledger's directory, or a file or directory of *.steps"
)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine: its answers, or its steps."""

    replica: str
    others: int
    """Engines that there are besides."""
    served: Sequence[ServedRequest] = ()
    samples: Sequence[StepSample] | None = None
    """Of steps that it told itself. None: `served` has answers."""


def read_recorded(path: Path, *, replica: str | None, last: int) -> Recorded:
    """The latest `last` answers, or steps, of that engine; None: of the one with the most.

    Raises ConfigError for a path that is none of these, and for an engine that is not there;
    TraceError for a file that is damaged. ConfigError of `samples` where there is no answer.
    """
    if path.is_dir():
        if (path / DATABASE_NAME).exists():
            return _of_answers([*served_of_timelines(ledger_timelines(path))], replica, last)
        files = sorted(path.glob(f"*{_STEPS}"))
        if not files:
            raise ConfigError(_KEY, str(path), _EXPECTED)
        return _of_steps(files, replica, last)
    if not path.exists():
        raise ConfigError(_KEY, str(path), f"{_EXPECTED}: there is none")
    if path.suffix == _STEPS:
        return _of_steps([path], replica, last)
    run = read_run(path)
    names = [target.name or target.url for target in run.meta.targets]
    return _of_answers([*served_of_calls(run.records, names)], replica, last)


def _of_answers(served: Sequence[ServedRequest], replica: str | None, last: int) -> Recorded:
    name, others = _chosen(Counter(each.replica for each in served), replica)
    own = deque((each for each in served if each.replica == name), last)
    return Recorded(replica=name, others=others, served=[*own])


def _of_steps(files: Sequence[Path], replica: str | None, last: int) -> Recorded:
    by_replica: dict[str, deque[EngineStep]] = {}
    counts: Counter[str] = Counter()
    for file in files:
        for step in read_steps(file, key=_KEY):
            by_replica.setdefault(step.replica, deque(maxlen=last)).append(step)
            counts[step.replica] += 1
    name, others = _chosen(counts, replica)
    steps = sorted(by_replica[name], key=lambda step: step.started_at_utc_ns)
    return Recorded(replica=name, others=others, samples=[*engine_step_samples(steps)])


def _chosen(counts: Counter[str], replica: str | None) -> tuple[str, int]:
    """The engine, and how many others there are."""
    if not counts:
        expected = "answers that ended well and have the engine's token counts"
        raise ConfigError("samples", 0, expected)
    if replica is None:
        return max(counts, key=counts.__getitem__), len(counts) - 1
    if replica not in counts:
        raise ConfigError("--replica", replica, f"one of {', '.join(sorted(counts))}")
    return replica, len(counts) - 1
