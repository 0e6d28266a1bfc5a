"""FittedEngine: how a running engine behaves, as its records show it; kept as JSON."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.costmodel.fitted import FittedSteps
from mileage.costmodel.plane import Features
from mileage.costmodel.step_table import StepTable

__all__ = ["NOISE_MAX_RATIO", "FittedEngine", "SampleKind", "SeenLoad"]

NOISE_MAX_RATIO: Final = 0.3

SampleKind = Literal["steps", "answers"]
"""steps: single steps, from the times of tokens; answers: the mean step of each answer."""


class SeenLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What it was learned from: beyond these figures it is an extrapolation."""

    requests: int
    duration_s: float
    """From the first dispatch to the last token."""
    running_max: int
    """Requests that decoded at once."""
    kv_tokens_max: int
    """Tokens of their contexts together."""
    prompt_tokens_max: int
    output_tokens_max: int
    prefill_step_tokens_max: int
    """Prompt tokens in one step."""


class FittedEngine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step times, limits and habits of one engine. Raises ConfigError for figures that cannot be.

    A limit that nobody told is what was seen, or None.
    """

    steps: FittedSteps
    kind: SampleKind
    model: str
    running_max: int
    """Requests that it runs at once."""
    running_max_told: bool
    """Else it is the most that was seen."""
    step_tokens_max: int
    """Tokens of one step."""
    step_tokens_told: bool
    """Else it is what explains the steps with prompts best, of powers of two."""
    kv_tokens_max: int | None
    """Tokens that its KV cache holds; None: not known, and not reached."""
    first_token_s: float
    """From the dispatch of a request to the first step with it, where the engine was idle, beyond
    the step itself: HTTP, tokens made of text, and back."""
    shared_prompt_tokens: int
    """Tokens that prompts begin with and that it found in its cache every time: a chat template, a
    system prompt."""
    noise_ratio: float
    """Standard deviation of a step's time over its mean, without its stalls."""
    seen: SeenLoad

    def __post_init__(self) -> None:
        require_range("running_max", self.running_max, 1, 1_000_000)
        require_range("step_tokens_max", self.step_tokens_max, 1, 1_000_000)
        if self.running_max > self.step_tokens_max:
            expected = f"at most step_tokens_max ({self.step_tokens_max})"
            raise ConfigError("running_max", self.running_max, expected)
        if self.kv_tokens_max is not None:
            require_at_least("kv_tokens_max", self.kv_tokens_max, 1)
        require_range("first_token_s", self.first_token_s, 0.0, 3600.0)
        require_range("shared_prompt_tokens", self.shared_prompt_tokens, 0, 10_000_000)
        require_range("noise_ratio", self.noise_ratio, 0.0, NOISE_MAX_RATIO)

    def step_table(self, running_max: int, step_tokens_max: int) -> StepTable:
        """Of steps in which each request's context has `shared_prompt_tokens` more than is told.

        So a simulation may leave those tokens out of every prompt: they are not computed again, but
        each step reads them for each request.
        """
        shared = self.shared_prompt_tokens
        planes = tuple(_with_context(plane, shared) for plane in self.steps.planes)
        steps = msgspec.structs.replace(self.steps, planes=planes)
        return steps.step_table(running_max, step_tokens_max)

    def to_json(self) -> bytes:
        """One JSON object, for people too."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> FittedEngine:
        """What `to_json` gave; ConfigError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigError("fitted engine", None, f"one of `simulate fit`: {error}") from error


def _with_context(plane: Features, tokens: int) -> Features:
    start_s, request_s, kv_s, prefill_s = plane
    return start_s, request_s + kv_s * tokens, kv_s, prefill_s
