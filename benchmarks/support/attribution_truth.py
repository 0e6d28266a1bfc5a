"""Truth of the attribution's benchmark: every step of the simulator, shared out by the formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.attribution_cases import Run
from mileage.cli.simulate_steps import engine_steps
from mileage.costmodel.batch_fit import fit_planes
from mileage.ledger.attribution_config import AttributionConfig
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_model import StepModel
from mileage.ledger.step_shares import shares_of_steps, uses_of
from mileage.sim.step_log import Stretch

__all__ = ["WINDOW_NS", "Window", "true_model", "truth_of", "windows_of_steps"]

WINDOW_NS = 20_000_000_000
_SAMPLES_MAX = 4000
_NS = 1e9
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """Steps that overlap it."""

    start_ns: int
    steps: list[EngineStep]

    @property
    def end_ns(self) -> int:
        """Its end."""
        return self.start_ns + WINDOW_NS


def windows_of_steps(run: Run) -> Iterator[Window]:
    """All windows from the first to the one in which the last step ends."""
    start_ns, kept, ended_ns = 0, list[EngineStep](), 0
    for stretch in run.stretches:
        for step in engine_steps("replica", stretch, after_ns=ended_ns):
            ended_ns = step.started_at_utc_ns + step.duration_ns
            while step.started_at_utc_ns >= start_ns + WINDOW_NS:
                yield Window(start_ns, kept)
                start_ns += WINDOW_NS
                kept = [s for s in kept if s.started_at_utc_ns + s.duration_ns > start_ns]
            kept.append(step)
    while kept:
        yield Window(start_ns, kept)
        start_ns += WINDOW_NS
        kept = [s for s in kept if s.started_at_utc_ns + s.duration_ns > start_ns]


def loads_of(stretch: Stretch) -> tuple[int, float, int, float]:
    """Requests that decode, their tokens of context, and prompt tokens in the mean step of it; and
    the pairs of its prompts' attention."""
    later = (len(stretch.times_s) - 1) / 2
    decoding = [part for part in stretch.parts if part.decode_tokens]
    chunks = [part for part in stretch.parts if part.prefill_tokens]
    return (
        len(decoding),
        sum(part.context_tokens for part in decoding) + later * len(decoding),
        sum(part.prefill_tokens for part in chunks),
        sum(p.prefill_tokens * (p.context_tokens + (p.prefill_tokens + 1) / 2) for p in chunks),
    )


def true_model(run: Run) -> StepModel:
    """The best model of the formula's kind through the steps of the whole run: with prompts and
    without, as many of each."""
    samples: list[list[tuple[float, ...]]] = [[], []]
    for stretch in run.stretches:
        decoding, kv, prefill, _ = loads_of(stretch)
        took_s = float(stretch.times_s.mean())
        samples[prefill > 0].append((1.0, decoding, kv, prefill, took_s))
    rows = np.concatenate([_spread(np.array(each)) for each in samples if each])
    return StepModel(fit_planes(rows[:, :4], rows[:, 4]))


def _spread(rows: Floats) -> Floats:
    if len(rows) <= _SAMPLES_MAX:
        return rows
    spread: Floats = rows[np.linspace(0, len(rows) - 1, _SAMPLES_MAX).astype(np.int64)]
    return spread


def truth_of(
    window: Window, model: StepModel, gpus: float, config: AttributionConfig
) -> tuple[dict[int, int], bool]:
    """GPU-ns of each request in the window, and whether something was computed anew in it."""
    began = np.array([s.started_at_utc_ns for s in window.steps], dtype=np.int64)
    ended = began + np.array([s.duration_ns for s in window.steps], dtype=np.int64)
    within = np.clip(ended, window.start_ns, window.end_ns)
    within -= np.clip(began, window.start_ns, window.end_ns)
    gpu_ns = np.rint(within * gpus).astype(np.int64)
    uses = uses_of(window.steps)
    ratios = (config.compute_ratio, config.memory_ratio, config.interconnect_ratio)
    shares, _, _ = shares_of_steps(uses, gpu_ns, model, ratios, config.decode_cost_tokens)
    ids, places = np.unique(uses.requests, return_inverse=True)
    totals = np.zeros(len(ids), dtype=np.int64)
    np.add.at(totals, places, shares)
    again = bool((uses.recomputed_tokens > 0).any())
    return dict(zip(ids.tolist(), totals.tolist(), strict=True)), again
