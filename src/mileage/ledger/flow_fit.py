"""FlowFit: what steps of one replica cost, learned from how fast its answers came."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from mileage.costmodel.plane import Features
from mileage.ledger.columns import Floats, sums
from mileage.ledger.flows import Flows, PromptSpans
from mileage.ledger.fluid import Fluid
from mileage.ledger.step_fit import StepFit, StepFitState

__all__ = ["FlowFit", "FlowFitState"]

_STEPS_MIN: Final = 4.0
_PAST_MAX: Final = 50_000
_PROMPTS_MAX: Final = 1024
_PROMPTS_MIN: Final = 16
_PROMPT_TOKENS_MIN: Final = 64.0
_MEDIAN, _DEAREST_QUANTILE = 0.5, 0.75
_CHUNK_TOKENS: Final = 2048.0
_WAIT_MIN_S, _WAIT_RATIO, _WAIT_PART = 0.5, 3.0, 0.02
_NS: Final = 1e-9


class FlowFitState(msgspec.Struct, frozen=True, array_like=True):
    """What was learned. Requests of the last windows are not in it: a restart forgets them."""

    steps: StepFitState = StepFitState()
    prompts: bytes = b""


class FlowFit:
    """Each answer is a sample: its mean step, beside how many decoded and were prefilled with it.

    Requests that ended before the window are remembered for as long as those that they ran with
    may last.
    """

    def __init__(self, state: FlowFitState | None = None) -> None:
        state = state or FlowFitState()
        self._steps = StepFit(state.steps)
        stored = np.frombuffer(state.prompts, dtype=np.float32).reshape(-1, 2)
        self._prompts = stored.astype(np.float64)
        """Tokens of prompts, and seconds that they took per token."""
        self._token_s: float | None = None
        self.waits = False
        """In the last window prompts waited though none before them was being computed."""
        self._past: Flows | None = None
        self._past_at_utc_ns = 0

    def state(self) -> FlowFitState:
        """All of it."""
        return FlowFitState(self._steps.state(), self._prompts.astype(np.float32).tobytes())

    @property
    def error_ratio(self) -> float | None:
        """Of the fit; None: there is none."""
        return self._steps.error_ratio

    @property
    def plane(self) -> Features | None:
        """Of a step, with all of what prompts cost; None: nothing was learned."""
        model = self._steps.model
        if model is None:
            return None
        # Means over answers do not tell two planes apart: the one of the heavier steps is meant.
        first = max(model.planes, key=lambda plane: plane[0])
        prefill_s = max(plane[3] for plane in model.planes)
        return first[0], first[1], first[2], prefill_s

    def with_past(self, flows: Flows, start_at_utc_ns: int, before_s: float) -> Flows:
        """The requests of a window, and behind them those that ended up to so long before it."""
        past = self._past
        joined = flows
        if past is not None:
            past = past.later((self._past_at_utc_ns - start_at_utc_ns) * _NS)
            past = past.those((past.end_s <= 0.0) & (past.end_s > -before_s))
            joined = flows.joined(past)
        recent = joined.those(np.arange(len(joined.start_s)) < _PAST_MAX)
        self._past, self._past_at_utc_ns = recent, start_at_utc_ns
        return joined

    def learn(
        self,
        fluid: Fluid,
        flows: Flows,
        decoding: Floats,
        kv_tokens: Floats,
        prefill: Floats,
        length_s: float,
    ) -> None:
        """Take in the answers that ended in the window. `prefill` is an integral over time."""
        chosen = (flows.end_s > 0.0) & (flows.end_s <= length_s) & (flows.steps >= _STEPS_MIN)
        chosen &= flows.first_s > fluid.begin_s
        first_s, end_s, steps = flows.first_s[chosen], flows.end_s[chosen], flows.steps[chosen]
        span_s = np.maximum(end_s - first_s, 1e-9)
        self._steps.learn(
            fluid.between(fluid.integral(decoding), first_s, end_s) / span_s,
            fluid.between(fluid.integral(kv_tokens), first_s, end_s) / span_s,
            fluid.between(prefill, first_s, end_s) / steps,
            span_s / steps,
        )

    def time_prompts(
        self, flows: Flows, spans: PromptSpans, length_s: float, *, exact: bool
    ) -> Flows:
        """Learn what a prompt token costs from how long prompts took.

        Not `exact`, as the engine does not tell what was in its cache: it is what the dearest ones
        took, those that had nothing there; and the flows come back with as many tokens to compute
        as there was time for.
        """
        self.waits = False
        step_s = self._usual_step_s(flows)
        count = int(spans.groups.max()) + 1 if len(spans.groups) else 0
        tokens = sums(flows.uncached_tokens, spans.groups, count)
        took_s = np.zeros(count)
        np.maximum.at(took_s, spans.groups, flows.first_s - spans.began_s)
        complete_s = np.full(count, -np.inf)
        np.maximum.at(complete_s, spans.groups, flows.first_s)
        chunks = np.ceil(np.maximum(tokens, 1.0) / _CHUNK_TOKENS)
        seen = (complete_s > 0.0) & (complete_s <= length_s) & (tokens >= _PROMPT_TOKENS_MIN)
        each_s = np.maximum(0.0, took_s - chunks * step_s)[seen] / tokens[seen]
        rows = np.stack([tokens[seen], each_s], axis=1).astype(np.float32).astype(np.float64)
        self._prompts = np.concatenate((self._prompts, rows))[-_PROMPTS_MAX:]
        self._token_s = self._prompt_token_s(_MEDIAN if exact else _DEAREST_QUANTILE)
        if self._token_s is None or self._token_s <= 0.0:
            return flows
        most_s = _WAIT_MIN_S + _WAIT_RATIO * (tokens * self._token_s + chunks * step_s)
        now = (complete_s > 0.0) & (complete_s <= length_s)
        self.waits = bool((took_s > most_s)[now].sum() >= max(1.0, _WAIT_PART * now.sum()))
        # Of a prompt that never had a token nobody knows how much was computed.
        bounded = ~flows.answered | (not exact)
        part = np.clip((took_s - step_s) / self._token_s / np.maximum(tokens, 1.0), 0.0, 1.0)
        least = np.minimum(1.0, flows.prompt_tokens)
        possible = np.maximum(least, flows.uncached_tokens * part[spans.groups])
        uncached = np.where(bounded, possible, flows.uncached_tokens)
        return replace(flows, uncached_tokens=uncached)

    def _usual_step_s(self, flows: Flows) -> float:
        paced = flows.steps >= _STEPS_MIN
        if not paced.any():
            return 0.0
        span_s = flows.end_s[paced] - flows.first_s[paced]
        return float(np.quantile(span_s / flows.steps[paced], 0.25))

    def _prompt_token_s(self, quantile: float) -> float | None:
        """Of prompt tokens the part `quantile` cost no more; None: too few were seen."""
        if len(self._prompts) < _PROMPTS_MIN:
            return None
        order = np.argsort(self._prompts[:, 1])
        tokens, each_s = self._prompts[order, 0], self._prompts[order, 1]
        upto = np.cumsum(tokens) / tokens.sum()
        return float(each_s[np.searchsorted(upto, quantile)])
