"""StepTimeFit: how long a step of an engine takes, learned while it serves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mileage.costmodel.plane import Features, Plane

__all__ = ["StepTimeFit"]

_FIRST_SAMPLES = 8
_CELLS_MAX = 64
_CELL_SAMPLES = 2
_ERROR_GAIN = 0.05
_NOISE_MIN_RATIO = 0.02
_HUBER = 3.0
_STRAY = 5.0
_ROUNDS = 5
_GAIN_MIN_RATIO = 0.8
_REFIT_SAMPLES = 32
_REFIT_SAMPLES_MAX = 1024
_SOLVE_SAMPLES = 16
_RIDGE = 0.01
_STEP_S_RANGE = (1e-7, 1e5)
_LOAD_MAX = 1e10


class _Sample(NamedTuple):
    features: Features
    step_s: float


class StepTimeFit:
    """Step time as the larger of two planes over (running, kv_tokens, prefill_tokens).

    A step takes as long as the slower of two things: reading weights and KV cache from memory, and
    computing. Each is a plane with non-negative coefficients, so the maximum is convex, never
    negative, and never falls as load rises. A single plane errs by 13-18 % where both occur.

    Each sample teaches the plane that is on top there; where both are as good as equal, the one
    that comes closer. Planes are fitted by recursive least squares (see `Plane`); which sample
    belongs to which is first settled by alternating on a spread of remembered samples (Magnani and
    Boyd, "Convex piecewise-linear fitting", 2009), and again while that makes the error
    clearly smaller. A sample counts less the further it is off compared with the usual error
    (Huber's weights), so that a stall moves next to nothing; after a lasting change the fit begins
    anew, within some 40 samples. Plain Python; one sample costs some 20 microseconds,
    and to assign all that are remembered anew some 10 milliseconds.
    """

    __slots__ = (
        "_cells",
        "_errors",
        "_good_error_ratio",
        "_good_samples",
        "_memory_samples",
        "_planes",
        "_recent",
        "_refit_after",
        "_unrefitted",
        "_unsolved",
        "error_ratio",
        "samples",
    )

    def __init__(
        self,
        *,
        memory_samples: float = 200.0,
        good_samples: int = 16,
        good_error_ratio: float = 0.15,
    ) -> None:
        """`memory_samples`: how many recent ones the fit follows, along each direction."""
        self._memory_samples = memory_samples
        self._good_samples = good_samples
        self._good_error_ratio = good_error_ratio
        self.samples = 0
        """Samples learned from."""
        self.error_ratio: float | None = None
        """Moving mean of |measured - predicted| / larger of the two, before each was learned."""
        self._errors = 0
        self._planes: list[Plane] = []
        self._cells: dict[tuple[int, int, int], list[_Sample]] = {}
        self._recent: deque[_Sample] = deque(maxlen=_REFIT_SAMPLES)
        self._refit_after = _REFIT_SAMPLES
        self._unrefitted = self._unsolved = 0

    @property
    def good(self) -> bool:
        """There were enough samples, and recent ones were predicted well."""
        error = self.error_ratio
        enough = self.samples >= self._good_samples
        return enough and error is not None and error <= self._good_error_ratio

    @property
    def planes(self) -> tuple[Features, ...]:
        """Coefficients (s, s per request, s per KV token, s per prefill token): none to two."""
        return tuple(plane.coefficients for plane in self._planes)

    def predict(self, running: float, kv_tokens: float, prefill_tokens: float) -> float | None:
        """Seconds that a step takes with this load; None until there is a fit."""
        if not self._planes:
            return None
        return self._top((1.0, running, kv_tokens, prefill_tokens))

    def learn(self, running: float, kv_tokens: float, prefill_tokens: float, step_s: float) -> None:
        """Take in that a step with this load took `step_s`; what cannot be is ignored."""
        if not _possible(running, kv_tokens, prefill_tokens, step_s):
            return
        sample = _Sample((1.0, running, kv_tokens, prefill_tokens), step_s)
        self.samples += 1
        if not self._planes:
            self._remember(sample)
            if self.samples >= _FIRST_SAMPLES:
                self._refit()
            return
        predicted_s = self._top(sample.features)
        usual = max(self.error_ratio or 0.0, _NOISE_MIN_RATIO)
        error = abs(step_s - predicted_s) / max(step_s, predicted_s)
        self._errors += 1
        if self.error_ratio is None:
            self.error_ratio = error
        else:
            gain = max(_ERROR_GAIN, 1.0 / self._errors)
            self.error_ratio += gain * (error - self.error_ratio)
        if error <= _STRAY * usual:
            self._remember(sample)
        scale_s = max(predicted_s, 0.1 * step_s)
        weight = min(1.0, _HUBER * usual * scale_s / max(abs(step_s - predicted_s), 1e-12))
        self._recent.append(sample)
        plane = self._plane_for(sample, usual * predicted_s)
        plane.learn(sample.features, step_s, scale_s, weight)
        self._unsolved += 1
        if self._unsolved >= _SOLVE_SAMPLES or self.samples < 4 * _SOLVE_SAMPLES:
            self._unsolved = 0
            for each in self._planes:
                each.solve()
        self._unrefitted += 1
        if self._unrefitted >= _REFIT_SAMPLES:
            self._keep_up(self.error_ratio)

    def _keep_up(self, error_ratio: float) -> None:
        """Assign anew, or begin anew, where that helps."""
        if error_ratio > self._good_error_ratio:
            self._unrefitted = 0
            self._begin_anew()
        elif self._unrefitted >= self._refit_after:
            self._unrefitted = 0
            # Rarely once it does not help any more.
            better = error_ratio > _NOISE_MIN_RATIO and self._refit()
            longer = min(2 * self._refit_after, _REFIT_SAMPLES_MAX)
            self._refit_after = _REFIT_SAMPLES if better else longer

    def _begin_anew(self) -> None:
        """Another engine, or the same with other settings: go by the latest samples alone.

        Only where those agree with each other better than with the fit: noise is no reason.
        """
        recent = list(self._recent)
        plane = self._plane(recent)
        if _squared_error([plane], recent) > 0.5 * _squared_error(self._planes, recent):
            return
        self._planes = [plane]
        self._refit_after = _REFIT_SAMPLES
        self.error_ratio, self._errors = None, 0
        self._cells.clear()
        for sample in recent:
            self._remember(sample)

    def _top(self, features: Features) -> float:
        return max([plane.predict(features) for plane in self._planes])

    def _plane_for(self, sample: _Sample, margin_s: float) -> Plane:
        if len(self._planes) == 1:
            return self._planes[0]
        first, second = self._planes
        first_s, second_s = first.predict(sample.features), second.predict(sample.features)
        if abs(first_s - second_s) <= margin_s:
            closer = abs(first_s - sample.step_s) <= abs(second_s - sample.step_s)
            return first if closer else second
        return first if first_s > second_s else second

    def _remember(self, sample: _Sample) -> None:
        """Keep the newest samples of each kind of load, and of the kinds those seen last."""
        _, running, kv_tokens, prefill_tokens = sample.features
        kind = (
            int(2.0 * math.log2(1.0 + running)),
            int(math.log2(1.0 + kv_tokens)),
            int(math.log2(1.0 + prefill_tokens)),
        )
        cell = self._cells.pop(kind, [])
        self._cells[kind] = [*cell[1 - _CELL_SAMPLES :], sample]
        if len(self._cells) > _CELLS_MAX:
            del self._cells[next(iter(self._cells))]

    def _refit(self) -> bool:
        """Fit the remembered samples anew; kept where that is clearly better. True: it was."""
        samples = [sample for cell in self._cells.values() for sample in cell]
        candidates = [[self._plane(samples)]]
        for axis in (1, 2, 3):
            halves = _halves(samples, axis)
            if halves is not None:
                candidates.append(self._alternated(samples, halves))
        errors = [_squared_error(planes, samples) for planes in candidates]
        best = min(range(len(candidates)), key=errors.__getitem__)
        if errors[best] > _GAIN_MIN_RATIO * errors[0]:
            best = 0
        if self._planes:
            now = _squared_error(self._planes, samples)
            if errors[best] > _GAIN_MIN_RATIO * now:
                return False
        self._planes = candidates[best]
        return True

    def _alternated(
        self, samples: Sequence[_Sample], halves: tuple[list[_Sample], list[_Sample]]
    ) -> list[Plane]:
        """Two planes: each fitted to its samples, each sample given to the plane on top there."""
        for _ in range(_ROUNDS):
            first, second = self._plane(halves[0]), self._plane(halves[1])
            upper: tuple[list[_Sample], list[_Sample]] = ([], [])
            for sample in samples:
                on_top = first.predict(sample.features) >= second.predict(sample.features)
                upper[0 if on_top else 1].append(sample)
            if upper == halves or not upper[0] or not upper[1]:
                break
            halves = upper
        return [first, second]

    def _plane(self, samples: Sequence[_Sample]) -> Plane:
        """One plane through the samples; strays count less in a second pass."""
        plane = Plane(memory_samples=self._memory_samples, ridge=_RIDGE)
        for sample in samples:
            plane.learn(sample.features, sample.step_s, sample.step_s, 1.0)
        plane.solve()
        errors = [_error(plane.predict, sample) for sample in samples]
        usual = max(sorted(errors)[len(errors) // 2], _NOISE_MIN_RATIO)
        if max(errors) <= _HUBER * usual:
            return plane
        robust = Plane(memory_samples=self._memory_samples, ridge=_RIDGE)
        for sample, error in zip(samples, errors, strict=True):
            weight = min(1.0, _HUBER * usual / error) if error > 0.0 else 1.0
            robust.learn(sample.features, sample.step_s, sample.step_s, weight)
        robust.solve()
        return robust


def _possible(running: float, kv_tokens: float, prefill_tokens: float, step_s: float) -> bool:
    shortest_s, longest_s = _STEP_S_RANGE
    return (
        0.0 <= running <= _LOAD_MAX
        and 0.0 <= kv_tokens <= _LOAD_MAX
        and 0.0 <= prefill_tokens <= _LOAD_MAX
        and shortest_s <= step_s <= longest_s
    )


def _halves(samples: Sequence[_Sample], axis: int) -> tuple[list[_Sample], list[_Sample]] | None:
    """The samples below and above the middle of one feature; None where it does not vary."""
    ordered = sorted(samples, key=lambda s: s.features[axis])
    middle = len(ordered) // 2
    if ordered[0].features[axis] == ordered[-1].features[axis]:
        return None
    return ordered[:middle], ordered[middle:]


def _error(predict: Callable[[Features], float], sample: _Sample) -> float:
    predicted_s = predict(sample.features)
    return abs(sample.step_s - predicted_s) / max(sample.step_s, predicted_s)


def _squared_error(planes: Sequence[Plane], samples: Sequence[_Sample]) -> float:
    def top(features: Features) -> float:
        return max([plane.predict(features) for plane in planes])

    return sum(_error(top, sample) ** 2 for sample in samples)
