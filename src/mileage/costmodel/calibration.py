"""Calibration: by how much an engine's real steps differ from those that the model expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.core.errors import ConfigError
from mileage.costmodel.fitted import StepSample
from mileage.costmodel.step_table import StepLine, StepTable

__all__ = ["Calibration", "calibrated", "learn_calibration"]

Floats: TypeAlias = NDArray[np.float64]
Ratio: TypeAlias = Annotated[float, msgspec.Meta(ge=0.3, le=3.0)]

_SAMPLES_MIN: Final = 32
_RATIO_MIN, _RATIO_MAX = 0.3, 3.0
"""Beyond these it is not this model, card or engine: better to say so than to stretch a model."""
_PRIOR_SAMPLES: Final = 8.0
_PRIOR_LOG: Final = 0.3
"""The prior: so many samples that say 1, each give or take 35 %."""
_NOISE_LOG: Final = 0.1
_STALL_LOG: Final = 0.3
"""A step that is off by more counts as if it were off by so much (Huber 1964): it stalled."""
_TURNS: Final = 30
_LOW, _HIGH = 0.1, 0.9


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Multiples of a model's step times, and how well they serve.

    The errors are medians of |predicted - measured| / measured, of steps that came after those that
    the multiples were learned from.
    """

    decode_ratio: Ratio = 1.0
    """Of what a step that only decodes takes by its number of requests."""
    prefill_ratio: Ratio = 1.0
    """Of what the tokens of prompts take, their attention included."""
    kv_ratio: Ratio = 1.0
    """Of reading the KV cache."""
    samples: int = 0
    error_before_ratio: float | None = None
    error_after_ratio: float | None = None
    interval: tuple[float, float] | None = None
    """Four of five later steps took a time within these multiples of the calibrated one."""

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Multiples that are as far from 1 as they may be: it is another engine, card or layout."""
        names = ("decode_ratio", "prefill_ratio", "kv_ratio")
        bounds = (_RATIO_MIN, _RATIO_MAX)
        return tuple(
            name
            for name in names
            if any(math.isclose(getattr(self, name), bound) for bound in bounds)
        )

    def to_json(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Calibration:
        """What `to_json` gave; ConfigError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigError("calibration", None, f"a calibration: {error}") from error


def calibrated(table: StepTable, calibration: Calibration) -> StepTable:
    """The table as this engine's steps are."""
    decode, prefill = calibration.decode_ratio, calibration.prefill_ratio

    def line(of: StepLine) -> StepLine:
        return msgspec.structs.replace(
            of,
            decode_s=tuple(decode * seconds for seconds in of.decode_s),
            mixed_s=tuple(prefill * seconds for seconds in of.mixed_s),
            request_s=prefill * of.request_s,
            pair_s=prefill * of.pair_s,
            kv_s=calibration.kv_ratio * of.kv_s,
        )

    return StepTable(lines=tuple(line(each) for each in table.lines))


def learn_calibration(samples: Sequence[StepSample], table: StepTable) -> Calibration:
    """Of steps in the order in which they were, against the table that expected them.

    Weighted least squares of the logarithms, with a prior of 1: few samples, or none with prompts,
    change little. The first half is learned from and the second judges; where it is not better with
    the multiples than without, they are 1. Those that are kept are of all samples.

    How much of a prompt came before a step is not on record: a prompt's tokens in one step are
    taken for one prompt's first ones. Steps beyond the table are left out. ConfigError for fewer
    than 32 that are left.
    """
    loads = _Loads(_within(samples, table), table)
    if len(loads) < _SAMPLES_MIN:
        expected = f"at least {_SAMPLES_MIN} steps of at most {table.requests_max} requests"
        raise ConfigError("samples", len(loads), expected)
    half = len(loads) // 2
    first, rest = slice(None, half), slice(half, None)
    none = np.zeros(3)
    learned = loads.fitted(first)
    before, after = loads.error(rest, none), loads.error(rest, learned)
    kept = loads.fitted(slice(None)) if after < before else none
    off = np.exp(loads.residuals(rest, learned if after < before else none))
    decode, prefill, kv = (float(ratio) for ratio in np.clip(np.exp(kept), _RATIO_MIN, _RATIO_MAX))
    return Calibration(
        decode_ratio=decode,
        prefill_ratio=prefill,
        kv_ratio=kv,
        samples=len(loads),
        error_before_ratio=before,
        error_after_ratio=min(after, before),
        interval=(float(np.quantile(off, _LOW)), float(np.quantile(off, _HIGH))),
    )


def _within(samples: Sequence[StepSample], table: StepTable) -> list[StepSample]:
    requests, tokens = table.requests_max, table.tokens_max
    return [
        each
        for each in samples
        if each.step_s > 0.0
        and 0.0 <= each.running <= requests
        and each.prefill_tokens >= 0.0
        and (each.prefill_tokens == 0.0 or each.running + each.prefill_tokens <= tokens)
        and all(map(math.isfinite, each))
    ]


class _Loads:
    """What each sample's step has of each part, as the table has it: seconds, lines x samples x 3.

    The parts are those of decoding, of prompts, and of reading the cache.
    """

    def __init__(self, samples: Sequence[StepSample], table: StepTable) -> None:
        rows = np.array(samples, dtype=np.float64).reshape(len(samples), 4)
        running, kv, prefill = rows[:, 0], rows[:, 1], rows[:, 2]
        plain = prefill == 0.0
        self._seen_log = np.log(rows[:, 3])
        self._parts = np.zeros((len(table.lines), len(samples), 3))
        for parts, line in zip(self._parts, table.lines, strict=True):
            parts[:, 0] = np.where(plain, _between(line.decode_s, running), 0.0)
            mixed = _between(line.mixed_s, np.where(plain, 0.0, running + prefill))
            pairs = line.pair_s * prefill * (prefill + 1.0) / 2.0
            parts[:, 1] = np.where(plain, 0.0, mixed + line.request_s * running + pairs)
            sharing = np.minimum(np.maximum(running, 1.0), line.spread)
            parts[:, 2] = line.kv_s * line.spread / sharing * kv

    def __len__(self) -> int:
        return len(self._seen_log)

    def residuals(self, of: slice, ratios_log: Floats) -> Floats:
        """Logarithm of measured over predicted."""
        predicted = (self._parts[:, of] @ np.exp(ratios_log)).max(axis=0)
        residuals: Floats = self._seen_log[of] - np.log(np.maximum(predicted, 1e-12))
        return residuals

    def error(self, of: slice, ratios_log: Floats) -> float:
        """Median of |predicted - measured| / measured."""
        return float(np.median(np.abs(np.expm1(-self.residuals(of, ratios_log)))))

    def fitted(self, of: slice) -> Floats:
        """Logarithms of the multiples: Gauss-Newton, each turn on the line that is the longer."""
        found = np.zeros(3)
        parts = self._parts[:, of]
        prior = np.eye(3) * _PRIOR_SAMPLES / _PRIOR_LOG**2
        columns = np.arange(parts.shape[1])
        for _ in range(_TURNS):
            times = parts @ np.exp(found)
            longest = times.argmax(axis=0)
            whole = np.maximum(times[longest, columns], 1e-12)
            slopes = parts[longest, columns] * np.exp(found) / whole[:, None]
            residuals = self._seen_log[of] - np.log(whole)
            # A step that stalled pulls no harder than one that is a little late.
            weights = np.minimum(1.0, _STALL_LOG / np.maximum(np.abs(residuals), 1e-12))
            weights /= _NOISE_LOG**2
            normal = (slopes * weights[:, None]).T @ slopes + prior
            step = np.linalg.solve(normal, slopes.T @ (weights * residuals) - prior @ found)
            moved = np.clip(found + step, math.log(_RATIO_MIN), math.log(_RATIO_MAX))
            if np.abs(moved - found).max() < 1e-9:
                break
            found = moved
        return found


def _between(values: Sequence[float], at: Floats) -> Floats:
    """Linear between whole numbers: a mean over steps has no whole number of requests."""
    found: Floats = np.interp(at, np.arange(len(values)), np.array(values))
    return found
