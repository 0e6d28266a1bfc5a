"""Step samples: how long an engine's steps took and what was in them, from recorded answers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.fitted import StepSample
from mileage.costmodel.load_curve import LoadCurve
from mileage.costmodel.served import ServedRequest

__all__ = ["Step", "interval_samples", "observed_steps", "step_samples"]

Floats = NDArray[np.float64]


class Step(NamedTuple):
    """From the end of one step to the end of the next, as one stream shows them."""

    start_s: float
    end_s: float
    running: float
    kv_tokens: float

    @property
    def middle_s(self) -> float:
        """A moment at which this step was in progress, whatever delays are between us and it."""
        return (self.start_s + self.end_s) / 2


def observed_steps(served: Sequence[ServedRequest]) -> list[Step]:
    """The steps of one engine that were seen: every one with a request in it that decodes.

    Requests that decode together share their steps, so each gap of a stream is one step: its
    streams are read in a relay, each from where the one before ended, so that no step counts twice.
    Each is measured on one stream alone, whatever delays there are between streams.
    """
    timed = sorted(
        (e for e in served if len(e.token_times_s) > 1), key=lambda e: e.token_times_s[0]
    )
    edges: list[tuple[float, float]] = []
    now_s, at, current = -np.inf, 0, None
    ahead: list[ServedRequest] = []
    while True:
        while at < len(timed) and timed[at].token_times_s[0] <= now_s:
            ahead.append(timed[at])
            at += 1
        # Of those that decode now the one that will for the longest.
        current = max(ahead, key=lambda e: e.token_times_s[-1], default=None)
        ahead = [] if current is None else [current]
        if current is None or current.token_times_s[-1] <= now_s:
            if at == len(timed):
                break
            now_s, ahead = timed[at].token_times_s[0], []
            continue
        times = current.token_times_s
        first = _nearest(times, now_s)
        edges.extend(zip(times[first:-1], times[first + 1 :], strict=True))
        now_s = times[-1]
    return _with_load(served, [edge for edge in edges if edge[0] < edge[1]])


def _nearest(times: Sequence[float], at_s: float) -> int:
    """The index of the time that is the closest to `at_s`: of the same step's token."""
    right = bisect_left(times, at_s)
    if right == len(times) or (right and at_s - times[right - 1] < times[right] - at_s):
        return right - 1
    return right


def _with_load(served: Sequence[ServedRequest], edges: Sequence[tuple[float, float]]) -> list[Step]:
    if not edges:
        return []
    curve = LoadCurve(served)
    bounds = np.array(edges)
    # A little in the middle: streams of one step are not told of it in the same moment.
    middle = bounds.mean(axis=1)
    reach = (bounds[:, 1] - bounds[:, 0]) * 0.01
    running = curve.running(middle - reach, middle + reach)
    context = curve.context_tokens(middle - reach, middle + reach)
    return [
        Step(*edge, max(1.0, round(float(n))), float(kv))
        for edge, n, kv in zip(edges, running, context, strict=True)
    ]


def step_samples(
    served: Sequence[ServedRequest], steps: Sequence[Step], step_tokens_max: int
) -> list[StepSample]:
    """Each observed step with the prompt tokens in it.

    The last part of a prompt is in the step that its first token ends. Where `step_tokens_max` is
    less than what is left of it then, earlier ones are in the steps before, as full as they may be,
    in the order in which first tokens came: engines fill steps first come, first served, and what
    the end of one prompt leaves of a step goes to the next one.
    """
    middles = [step.middle_s for step in steps]
    room = [max(1.0, step_tokens_max - step.running) for step in steps]
    prefill = [0.0] * len(steps)
    most = max((step.running for step in steps), default=0.0)

    def spare(index: int) -> bool:
        """Whether the step had room beside the end of another prompt, and the engine a place."""
        return prefill[index] > 0.0 and room[index] > 0.0 and steps[index].running + 1.0 < most

    for first_s, dispatched_s, tokens in sorted(
        (each.first_s, each.dispatched_s, each.computed_tokens)
        for each in served
        if each.first_s is not None
    ):
        left = float(tokens)
        last = bisect_right(middles, first_s) - 1
        begin, place = last + 1, 0.0
        while place < left and begin > 0 and middles[begin - 1] > dispatched_s:
            begin -= 1
            place += room[begin]
        while begin > 0 and spare(begin - 1) and steps[begin - 1].start_s > dispatched_s:
            begin -= 1
        for index in range(begin, last + 1):
            part = min(left, room[index])
            room[index] -= part
            prefill[index] += part
            left -= part
    return [
        StepSample(step.running, step.kv_tokens, tokens, step.end_s - step.start_s)
        for step, tokens in zip(steps, prefill, strict=True)
    ]


def interval_samples(served: Sequence[ServedRequest]) -> list[StepSample]:
    """For records without the times of tokens: the mean step between each first token and last.

    Where the engine had the same load meanwhile, or a step's time is linear in it, that is exact.
    """
    streams = [each for each in served if _is_interval(each)]
    if not streams:
        return []
    curve = LoadCurve(served)
    starts = np.array([each.first_s for each in streams], dtype=np.float64)
    ends = np.array([each.last_s for each in streams])
    running, context = curve.running(starts, ends), curve.context_tokens(starts, ends)
    firsts = sorted((each.first_s, each.computed_tokens) for each in served if each.first_s)
    times = [at for at, _ in firsts]
    tokens = np.concatenate(([0.0], np.cumsum([float(count) for _, count in firsts])))
    found = []
    for number, each in enumerate(streams):
        steps = each.output_tokens - 1
        begun, ended = bisect_right(times, starts[number]), bisect_left(times, ends[number])
        found.append(
            StepSample(
                float(running[number]),
                float(context[number]),
                float(tokens[max(begun, ended)] - tokens[begun]) / steps,
                (each.last_s - starts[number]) / steps,
            )
        )
    return found


def _is_interval(served: ServedRequest) -> bool:
    first_s = served.first_s
    return first_s is not None and served.output_tokens > 1 and served.last_s > first_s
