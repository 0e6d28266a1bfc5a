"""SpeculativeEngine: tokens are proposed to each request, and a step accepts some of them."""

from __future__ import annotations

from random import Random

from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.sequence import DECODING, Sequence
from mileage.sim.serving_engine import ServingEngine
from mileage.sim.speculative_batch import SpeculativeBatch

__all__ = ["SpeculativeEngine"]


class SpeculativeEngine(ServingEngine):
    """A step computes `draft_tokens` + 1 tokens of each request that decodes, and yields those that
    are accepted and one more (Leviathan et al., Fast inference from transformers via speculative
    decoding, 2023). They come in one event: the gaps of a request are between its steps.

    The step takes as long as one with so many times the requests, which reads their contexts once,
    and the time of the proposals.
    """

    def __init__(self, config: EngineConfig, table: StepTable, random: Random) -> None:
        super().__init__(config, table, random)
        settings = config.speculation
        assert settings is not None
        self._settings = settings
        self._drawn = Random(random.getrandbits(64))  # noqa: S311 (no secret)
        self.batch: SpeculativeBatch = SpeculativeBatch(
            self.config.block_tokens, settings.draft_tokens + 1
        )
        self._credit: dict[Sequence, float] = {}
        """Of each request the part of a token that was not given out."""

    def _decoded(self, steps: int) -> None:
        batch = self.batch
        self.decode_tokens += batch.rows
        for sequence in batch:
            tokens = min(self._accepted(sequence), sequence.output_tokens - sequence.produced)
            batch.advance(sequence, tokens)
            self.output_tokens += tokens

    def _accepted(self, sequence: Sequence) -> int:
        """Tokens of the sequence that come out of this step, if its answer is long enough."""
        settings = self._settings
        if settings.acceptance == "expected":
            credit = self._credit.get(sequence, 0.0) + settings.tokens_mean
            tokens = int(credit + 1e-9)
            self._credit[sequence] = credit - tokens
            return tokens
        tokens, draw = 1, self._drawn.random
        while tokens <= settings.draft_tokens and draw() < settings.acceptance_ratio:
            tokens += 1
        return tokens

    def _end(self, sequence: Sequence, now_s: float) -> None:
        super()._end(sequence, now_s)
        self._credit.pop(sequence, None)

    def _drop(self, sequence: Sequence, extra: int = 0) -> None:
        if sequence.state != DECODING:
            super()._drop(sequence, extra)
            return
        self._credit.pop(sequence, None)
        del self.running[sequence]
        extra = self.batch.spare(sequence)
        self.batch.leave(sequence)
        self.pool.release(sequence, sequence.computed, extra)
        if self.adapters is not None:
            self.adapters.end(sequence.adapter)

    def _add_prompts(self, budget: int, preemptions: int, now_s: float) -> None:
        self.batch.grant()
        proposed = self.batch.rows - self.batch.count
        super()._add_prompts(budget - proposed, preemptions, now_s)

    def _add_time(self) -> None:
        self.timer.added_s = 0.0
        super()._add_time()
        if self.batch.count:
            self.timer.added_s += self._settings.draft_tokens * self._settings.draft_step_s
