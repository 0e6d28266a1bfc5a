"""Fitted step times: learned from the steps of a running engine, kept as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.costmodel.batch_fit import fit_line, fit_planes
from mileage.costmodel.plane import Features
from mileage.costmodel.step_table import StepLine, StepTable

__all__ = ["FittedSteps", "StepSample", "fit_steps"]

Floats: TypeAlias = NDArray[np.float64]

_SAMPLES_MIN = 16
_OFFSET_SAMPLES_MIN = 8
_OFFSET_MAX_RATIO = 0.5
_COUNTS_MAX = 4096
_LOAD_MAX = 1e10
_STEP_S_MIN, _STEP_S_MAX = 1e-7, 1e5


class StepSample(NamedTuple):
    """One measured step of an engine."""

    running: float
    """Requests that decode."""
    kv_tokens: float
    """Of their contexts, together."""
    prefill_tokens: float
    step_s: float


class FittedSteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One or two planes over running, kv_tokens and prefill_tokens; a step takes the larger one."""

    planes: tuple[Features, ...]
    """Coefficients: s, s per request, s per token of context, s per token of prompts."""
    samples: int
    error_ratio: float
    """Median of |measured - predicted| / measured of the samples that it was learned from."""
    engine: str = ""
    """What it was measured on, for people."""
    decode_offsets_s: tuple[float, ...] = ()
    """What steps that only decode took beyond the planes, by their requests, from 0 on: kernels are
    made for some batch sizes, and waste part of a step at others."""
    prompt_offset_s: float = 0.0
    """What steps with prompt tokens took beyond the planes."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.planes) <= 2:
            raise ConfigError("planes", len(self.planes), "one or two")
        for plane in self.planes:
            for value in plane:
                require_at_least("planes", value, 0.0)
        if not any(any(plane) for plane in self.planes):
            raise ConfigError("planes", self.planes, "one that is not all 0")
        if not all(math.isfinite(offset) for offset in self.decode_offsets_s):
            raise ConfigError("decode_offsets_s", self.decode_offsets_s, "finite numbers")
        require_at_least("prompt_offset_s", self.prompt_offset_s, 0.0)

    def step_table(self, requests_max: int, step_tokens_max: int) -> StepTable:
        """The table for up to so many requests and tokens: one line per plane.

        Attention of a prompt is not told apart from its other work: it is in the seconds per token,
        as it was in the mean of what was measured.
        """
        require_at_least("requests_max", requests_max, 1)
        require_at_least("step_tokens_max", step_tokens_max, 1)
        tokens_max = step_tokens_max + requests_max
        counts = range(requests_max + 1)
        lines = [_line(plane, requests_max, tokens_max) for plane in self.planes]
        # Of the larger line never less than some part is left.
        tops = [max(line.decode_s[n] for line in lines) for n in counts]
        known = len(self.decode_offsets_s)
        offsets = [
            max(self.decode_offsets_s[n] if n < known else 0.0, -_OFFSET_MAX_RATIO * tops[n])
            for n in counts
        ]
        return StepTable(
            lines=tuple(_shifted(line, offsets, self.prompt_offset_s) for line in lines)
        )

    def to_json(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> FittedSteps:
        """What `to_json` gave; ConfigError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigError("fitted", None, f"fitted step times: {error}") from error


def _line(plane: Features, requests_max: int, tokens_max: int) -> StepLine:
    start_s, request_s, kv_s, prefill_s = plane
    return StepLine(
        decode_s=tuple(start_s + request_s * n for n in range(requests_max + 1)),
        # By all tokens of the step: a request's own token is taken off again.
        mixed_s=tuple(start_s + prefill_s * n for n in range(tokens_max + 1)),
        request_s=request_s - prefill_s,
        kv_s=kv_s,
        pair_s=0.0,
    )


def _shifted(line: StepLine, decode_s: Sequence[float], prompt_s: float) -> StepLine:
    """The line with so much on top, never below 0."""
    return msgspec.structs.replace(
        line,
        decode_s=tuple(max(0.0, s + o) for s, o in zip(line.decode_s, decode_s, strict=True)),
        mixed_s=tuple(s + prompt_s for s in line.mixed_s),
    )


def fit_steps(samples: Iterable[StepSample], engine: str = "") -> FittedSteps:
    """Learn from the samples. ConfigError where they are too few to learn from.

    The form is that of the gateway's own fit (`StepTimeFit`), but all samples are there at once:
    see `fit_planes`. Steps that stalled count little.
    """
    kept = [sample for sample in samples if _possible(sample)]
    if len(kept) < _SAMPLES_MIN:
        raise ConfigError("samples", len(kept), f"at least {_SAMPLES_MIN} possible ones")
    loads = np.array([(1.0, *sample[:3]) for sample in kept])
    seconds = np.array([sample.step_s for sample in kept])
    planes, prompt_s = _with_prompts(fit_planes(loads, seconds), loads, seconds)
    offsets = _decode_offsets_s(loads, seconds, planes)
    beyond = np.where(loads[:, 3] > 0.0, prompt_s, 0.0)
    if offsets:
        plain = loads[:, 3] == 0.0
        beyond[plain] = np.array(offsets)[np.rint(loads[plain, 1]).astype(int)]
    predicted = (loads @ np.array(planes).T).max(axis=1) + beyond
    return FittedSteps(
        planes=planes,
        samples=len(kept),
        error_ratio=float(np.median(np.abs(predicted / seconds - 1.0))),
        engine=engine,
        decode_offsets_s=offsets,
        prompt_offset_s=prompt_s,
    )


def _decode_offsets_s(
    loads: Floats, seconds: Floats, planes: Sequence[Features]
) -> tuple[float, ...]:
    """Median residual by the number of requests, where whole steps tell it; few tell less."""
    plain = loads[:, 3] == 0.0
    counts = np.rint(loads[:, 1]).astype(int)
    # Means over several steps are not of one number of requests.
    plain &= np.abs(loads[:, 1] - counts) < 1e-9
    if not plain.any() or counts[plain].max() > _COUNTS_MAX:
        return ()
    residuals = seconds - (loads @ np.array(planes).T).max(axis=1)
    found = [0.0] * (int(counts[plain].max()) + 1)
    for count in range(1, len(found)):
        own = residuals[plain & (counts == count)]
        if len(own) >= _OFFSET_SAMPLES_MIN:
            share = len(own) / (len(own) + _OFFSET_SAMPLES_MIN)
            found[count] = share * float(np.median(own))
    return tuple(found)


def _with_prompts(
    planes: tuple[Features, ...], loads: Floats, seconds: Floats
) -> tuple[tuple[Features, ...], float]:
    """What prompts take, from the steps that have some alone: per token, and per step.

    Where a step is the larger of two planes, what is compute there is not told apart.
    """
    mixed = loads[:, 3] > 0.0
    if len(planes) > 1 or mixed.all() or mixed.sum() < _OFFSET_SAMPLES_MIN:
        return planes, 0.0
    start_s, request_s, kv_s, _ = planes[0]
    rest = seconds[mixed] - loads[mixed][:, :3] @ np.array((start_s, request_s, kv_s))
    above = rest > 0.0
    if above.sum() < _OFFSET_SAMPLES_MIN:
        return planes, 0.0
    step_s, token_s = fit_line(loads[mixed][above, 3], rest[above])
    return ((start_s, request_s, kv_s, token_s),), step_s


def _possible(sample: StepSample) -> bool:
    loads = all(0.0 <= load <= _LOAD_MAX for load in sample[:3])
    return loads and _STEP_S_MIN <= sample.step_s <= _STEP_S_MAX
