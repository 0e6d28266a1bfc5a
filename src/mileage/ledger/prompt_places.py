"""Prompt places: which steps computed which prompts, by how long the steps took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mileage.ledger.columns import Floats, Ints
from mileage.ledger.observed_steps import ObservedSteps
from mileage.ledger.step_model import StepModel

__all__ = ["PromptPlaces", "place_prompts", "room_of"]

_NOISE_RATIO: Final = 0.08
"""A step that took so much longer than its decodes explain computed a prompt besides."""
_ROOM_TOKENS_MIN: Final = 8.0


@dataclass(frozen=True, slots=True)
class PromptPlaces:
    """Parts of prompts in steps, in no order."""

    steps: Ints
    jobs: Ints
    """Rows of the observed prompts."""
    tokens: Floats
    before_tokens: Floats
    """Of the same prompt, computed or cached before."""


def room_of(model: StepModel, decode: Floats, kv: Floats, step_s: Floats) -> Floats:
    """Prompt tokens that explain how long each step took beside its decodes; 0 where noise does.

    A step takes as long as the larger plane: as many tokens as the first one to be reached allows.
    """
    room = np.full(len(step_s), np.inf)
    for start_s, decode_s, kv_s, prefill_s in model.planes:
        if prefill_s > 0.0:
            rest_s = step_s - (start_s + decode_s * decode + kv_s * kv)
            room = np.minimum(room, np.maximum(0.0, rest_s) / prefill_s)
    plain_s = model.step_s(decode, kv, np.zeros(len(kv)))
    beyond = step_s > (1.0 + _NOISE_RATIO) * plain_s
    found: Floats = np.where((beyond | (decode == 0.0)) & np.isfinite(room), room, 0.0)
    return found


def place_prompts(steps: ObservedSteps, room: Floats, *, exact: bool) -> PromptPlaces:
    """Each prompt backwards from the step that completed it, as much in each as there is room.

    Engines compute prompts first come, first served, and one after the other: what a prompt leaves
    of its last step goes to the next one. The parts lie in steps that follow each other and began
    after it came. What finds no room is shared out over the same steps; unless its tokens are not
    known `exact`ly, as some may have been in a cache, or it never had a token: then they were
    fewer.
    """
    left = room.tolist()
    begins = steps.begin_s.tolist()
    rows: list[tuple[int, int, float]] = []
    for job, (last, ready_s, tokens, sure) in enumerate(
        zip(
            steps.job_steps.tolist(),
            steps.job_ready_s.tolist(),
            steps.job_tokens.tolist(),
            (steps.job_sure & exact).tolist(),
            strict=True,
        )
    ):
        need, at = tokens, last
        found: list[tuple[int, float]] = []
        while True:
            part = min(need, left[at])
            if part > 0.0:
                left[at] -= part
                need -= part
                found.append((at, part))
            if need <= 0.0 or at == 0 or begins[at] < ready_s or left[at - 1] < _ROOM_TOKENS_MIN:
                break
            at -= 1
        placed = tokens - need
        if not found:
            rows.append((last, job, tokens if sure else min(1.0, tokens)))
        elif sure and need > 0.0:
            rows.extend((at, job, part * tokens / placed) for at, part in found)
        else:
            rows.extend((at, job, part) for at, part in found)
    return _places(steps, rows)


def _places(steps: ObservedSteps, rows: list[tuple[int, int, float]]) -> PromptPlaces:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    jobs = table[:, 1].astype(np.int64)
    placed = np.bincount(jobs, weights=table[:, 2], minlength=len(steps.job_steps))
    # Rows of a prompt go backwards in time: what is before a part is all but it and those after.
    sums = np.cumsum(table[:, 2])
    starts = np.searchsorted(jobs, jobs)
    upto = sums - np.concatenate(([0.0], sums))[starts]
    known = steps.job_tokens + steps.job_context  # all of it, when it was complete
    before = np.where(placed > 0.0, known, 0.0)[jobs] - upto
    return PromptPlaces(table[:, 0].astype(np.int64), jobs, table[:, 2], np.maximum(0.0, before))
