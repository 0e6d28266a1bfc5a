"""Lab: runs the very commands that the page shows, and takes ratios of what they print."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mileage.cli.whole_command import app
from mileage.costmodel.catalogue import architecture
from mileage.costmodel.precision import KV_BYTES

__all__ = [
    "SEEDS",
    "T_95",
    "Arm",
    "Document",
    "Figure",
    "Lab",
    "Ratio",
    "memory_bytes",
    "ratio_of",
    "value",
]

SEEDS = (1, 2, 3, 4, 5)
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""Student's t at 97.5 % by degrees of freedom: of two to five seeds."""

Document = Mapping[str, Any]
Figure = Callable[[Document], float]


@dataclass(frozen=True, slots=True)
class Arm:
    """A command without `mileage` and `--json`, and which of its arms is meant (None: it has one).
    `environment` stands before the command."""

    words: tuple[str, ...]
    name: str | None = None
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        before = "".join(f"{key}={text} " for key, text in self.environment)
        return f"{before}mileage {shlex.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Geometric mean over seeds of pairs of runs, and its 95 % interval; the values are means."""

    ratio: float
    low: float
    high: float
    before: float
    after: float


@dataclass(slots=True)
class Lab:
    """Runs each command once: what was printed is kept."""

    seeds: Sequence[int] = SEEDS
    _documents: dict[tuple[str, int | None], Document] = field(default_factory=dict)

    def document(self, arm: Arm, seed: int | None = None) -> Document:
        """What the command prints as JSON. Raises RuntimeError where it fails."""
        key = str(arm), seed
        if key not in self._documents:
            words = [*arm.words, "--json"]
            if seed is not None:
                words += ["--seed", str(seed)]
            self._documents[key] = _run(words, dict(arm.environment))
        found = self._documents[key]
        arms = found.get("arms")
        if arms is None or arm.name is None:
            return found
        chosen: Document = next(each for each in arms if each["name"] == arm.name)
        return chosen

    def mean(self, figure: Figure, arm: Arm) -> float:
        """A figure of one arm, over the seeds."""
        return statistics.fmean(figure(self.document(arm, seed)) for seed in self.seeds)

    def ratio(self, figure: Figure, *, after: Arm, before: Arm) -> Ratio:
        """Of a figure with the technique over that without, pair by pair of equal seeds."""
        pairs = [
            (figure(self.document(before, seed)), figure(self.document(after, seed)))
            for seed in self.seeds
        ]
        return ratio_of(pairs)


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Of pairs of (without, with), one for each seed; from a single one no interval comes.

    The interval is Student's, of the mean of the logarithms: it holds what the seeds differ by,
    and not what the step times may be wrong by, which both arms share.
    """
    logs = [math.log(after / before) for before, after in pairs]
    mean, half = statistics.fmean(logs), 0.0
    if len(logs) > 1:
        half = T_95[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(
        ratio=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        before=statistics.fmean(before for before, _ in pairs),
        after=statistics.fmean(after for _, after in pairs),
    )


def value(path: str) -> Figure:
    """The figure at a place of the document, such as `ttft_s.p50`."""

    def of(document: Document) -> float:
        found: Any = document
        for name in path.split("."):
            found = found[name]
        if found is None:
            raise RuntimeError(f"the run has no {path}")
        return float(found)

    return of


def memory_bytes(document: Document) -> float:
    """Weights, and the KV cache where it was fullest, of a replica on one GPU."""
    assumed = document["assumptions"]
    model = architecture(assumed["model"])
    token_bytes = model.kv_elements * KV_BYTES[assumed["kv"]] * model.layers
    kv = document["kv_cache_usage_peak_ratio"] * assumed["kv_tokens"] * token_bytes
    return float(assumed["weight_gb_per_gpu"] * 1e9 + kv)


def _run(words: Sequence[str], environment: Mapping[str, str]) -> Document:
    out = io.StringIO()
    with _variables(environment), contextlib.redirect_stdout(out):
        code = app(args=list(words), standalone_mode=False)
    if code:
        raise RuntimeError(f"mileage {shlex.join(words)} ended with {code}")
    found: Document = json.loads(out.getvalue())
    return found


@contextlib.contextmanager
def _variables(environment: Mapping[str, str]) -> Iterator[None]:
    earlier = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for key, text in earlier.items():
            if text is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = text
