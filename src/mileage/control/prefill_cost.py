"""PrefillCost: what a prompt token takes of an engine, in output tokens."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.costmodel.step_time import StepTimeFit
from mileage.policy.limits.limit import RequestSample

__all__ = ["PrefillCost"]

_STEPS_MIN = 200.0
_LOAD_GAIN = 0.1
_COST_MIN, _COST_MAX = 0.005, 2.0


class PrefillCost:
    """Seconds per prompt token, on the plane of the fitted step time that prompts weigh most on,
    over a step without any prompt, shared by the requests that decode in it.

    It learns from means over the requests that ended, once those make 200 steps. A prompt counts
    whole in the moment of its first token: over the few steps of one request their number is mostly
    chance, and a fit would take chance for absence of an effect.
    """

    __slots__ = ("_context", "_decoding", "_steps", "_sums")

    def __init__(self) -> None:
        self._steps = StepTimeFit()
        self._decoding = self._context = 0.0
        self._sums = [0.0] * 5

    def learn(self, samples: Iterable[RequestSample]) -> None:
        """Take in requests that have ended."""
        sums = self._sums
        for sample in samples:
            if sample.step_s is not None:
                steps = max(1, sample.output_tokens - sample.stream)
                sums[0] += steps
                sums[1] += steps * sample.decoding_mean
                sums[2] += steps * sample.kv_tokens_mean
                sums[3] += steps * sample.prefill_tokens_per_step
                sums[4] += steps * sample.step_s
        if sums[0] < _STEPS_MIN:
            return
        decoding, kv_tokens, prefill_tokens, step_s = (total / sums[0] for total in sums[1:])
        self._sums = [0.0] * 5
        self._steps.learn(decoding, kv_tokens, prefill_tokens, step_s)
        self._decoding += _LOAD_GAIN * (decoding - self._decoding)
        self._context += _LOAD_GAIN * (kv_tokens - self._context)

    @property
    def value(self) -> float | None:
        """Output tokens that a prompt token is worth; None until the fit is good."""
        steps, decoding = self._steps, self._decoding
        if not steps.good or decoding <= 0.0:
            return None
        plane = max(steps.planes, key=lambda plane: plane[3])
        decode_s = plane[0] + plane[1] * decoding + plane[2] * self._context
        if not (decode_s > 0.0 and plane[3] > 0.0):
            return None
        return min(_COST_MAX, max(_COST_MIN, plane[3] * decoding / decode_s))
