"""Fitted step times: learned from the steps of a running engine, kept as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.costmodel.plane import Features
from mileage.costmodel.step_table import StepLine, StepTable
from mileage.costmodel.step_time import StepTimeFit

__all__ = ["FittedSteps", "StepSample", "fit_steps"]

_MEMORY_SAMPLES = 5000.0
_PASSES = 2
_SAMPLES_MIN = 16


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

    def __post_init__(self) -> None:
        if not 1 <= len(self.planes) <= 2:
            raise ConfigError("planes", len(self.planes), "one or two")
        for plane in self.planes:
            for value in plane:
                require_at_least("planes", value, 0.0)
        if not any(any(plane) for plane in self.planes):
            raise ConfigError("planes", self.planes, "one that is not all 0")

    def step_table(self, requests_max: int, step_tokens_max: int) -> StepTable:
        """The table for up to so many requests and tokens: one line per plane.

        Attention of a prompt is not told apart from its other work: it is in the seconds per token,
        as it was in the mean of what was measured.
        """
        require_at_least("requests_max", requests_max, 1)
        require_at_least("step_tokens_max", step_tokens_max, 1)
        return StepTable(
            lines=tuple(
                _line(plane, requests_max, step_tokens_max + requests_max) for plane in self.planes
            )
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


def fit_steps(samples: Iterable[StepSample], engine: str = "") -> FittedSteps:
    """Learn from the samples, in their order. ConfigError where they are too few to learn from.

    The fit is the gateway's own (`StepTimeFit`), with a memory that is long enough for all of them;
    they are gone through twice, as the first ones were seen before it was known which plane they
    are of. Steps that stalled count little.
    """
    kept = list(samples)
    fit = StepTimeFit(memory_samples=_MEMORY_SAMPLES)
    for _ in range(_PASSES):
        for sample in kept:
            fit.learn(*sample)
    if not fit.planes or fit.samples < _PASSES * _SAMPLES_MIN:
        raise ConfigError("samples", len(kept), f"at least {_SAMPLES_MIN} possible ones")
    errors = sorted(
        abs((fit.predict(*sample[:3]) or 0.0) - sample.step_s) / sample.step_s
        for sample in kept
        if sample.step_s > 0.0
    )
    return FittedSteps(
        planes=fit.planes,
        samples=len(kept),
        error_ratio=errors[len(errors) // 2],
        engine=engine,
    )
