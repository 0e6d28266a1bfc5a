"""How long one step of the step engine takes: the slower of two planes, known to the digit."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "Plane", "StepModel"]


@dataclass(frozen=True, slots=True)
class Plane:
    """Seconds of a step, linear in what it works on.

    `running`: sequences that decode in the step; `kv_tokens`: tokens of context that it reads;
    `prefill_tokens`: prompt tokens that it computes.
    """

    base_s: float = 0.0
    running_s: float = 0.0
    kv_token_s: float = 0.0
    prefill_token_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.base_s, self.running_s, self.kv_token_s, self.prefill_token_s) < 0:
            raise ValueError(f"a plane has no negative coefficients: {self}")

    def step_s(self, running: int, kv_tokens: int, prefill_tokens: int) -> float:
        """Seconds on this plane."""
        return (
            self.base_s
            + self.running_s * running
            + self.kv_token_s * kv_tokens
            + self.prefill_token_s * prefill_tokens
        )


@dataclass(frozen=True, slots=True)
class StepModel:
    """The max of the compute plane and the memory plane, as a roofline has it."""

    compute: Plane
    memory: Plane

    def __post_init__(self) -> None:
        if max(self.compute.base_s, self.memory.base_s) <= 0:
            raise ValueError("a step takes some time, whatever is in it")

    def step_s(self, running: int, kv_tokens: int, prefill_tokens: int) -> float:
        """Seconds of one step, without noise."""
        return max(
            self.compute.step_s(running, kv_tokens, prefill_tokens),
            self.memory.step_s(running, kv_tokens, prefill_tokens),
        )

    def work_s(self, prompt_tokens: float, output_tokens: float) -> float:
        """What one request adds to the compute plane: its share of a busy engine, in seconds.

        A request of n output tokens decodes n - 1 times: the first one comes out of its prefill.
        """
        plane = self.compute
        decodes = max(0.0, output_tokens - 1)
        return plane.prefill_token_s * prompt_tokens + plane.running_s * decodes


MODELS = {
    # Memory-bound up to 18 sequences; then every one more costs its share.
    "small": StepModel(
        compute=Plane(base_s=0.002, running_s=0.0015, prefill_token_s=0.000_12),
        memory=Plane(base_s=0.030, kv_token_s=0.000_000_5),
    ),
    # Every token has its price, and next to nothing else costs: work is the tokens' sum.
    "linear": StepModel(
        compute=Plane(base_s=0.000_2, running_s=0.001, prefill_token_s=0.000_1),
        memory=Plane(base_s=0.000_2),
    ),
}
"""Step models by the name that the step engine's command line takes."""
