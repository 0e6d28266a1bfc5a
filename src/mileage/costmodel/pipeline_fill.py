"""PipelineFill: what a prompt waits for the stages of a pipeline, after its share of the steps."""

from __future__ import annotations

import msgspec

from mileage.core.bounds import require_at_least
from mileage.costmodel.layout import Layout
from mileage.costmodel.step_tables import step_table

__all__ = ["PipelineFill", "pipeline_fill"]


class PipelineFill(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """By how much a first token comes later than the step ends that its prompt was computed in.

    A step of `step_table` is the time in which each of s stages has worked on each of s batches:
    so much work the pipeline gets done in it. But one batch passes the stages in turn. A prompt
    that fits into one batch takes as long as if there were no pipeline, T, of which a step counts
    only its share; one of k batches takes (k + s - 1) / s T, as they follow each other, of which
    steps count k / s T. The rest is here.
    """

    chunk_s: tuple[float, ...]
    """By the tokens of a prompt that fits into one batch, 0 to a batch's most."""
    full_s: float
    """Of a longer one."""
    pair_s: float
    """Besides, for each pair of a query and a key in its last batch."""

    def seconds(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        """Of a prompt, some of which may have been found in a cache."""
        most = len(self.chunk_s) - 1
        computed = max(prompt_tokens - cached_tokens, 0)
        last = min(computed, most)
        pairs = last * (prompt_tokens - last) + last * (last + 1) / 2
        return (self.chunk_s[last] if computed <= most else self.full_s) + self.pair_s * pairs


def pipeline_fill(layout: Layout, batch_tokens_max: int) -> PipelineFill | None:
    """Of that layout, for batches of up to so many tokens on each data-parallel rank; None where
    there is one stage only."""
    require_at_least("batch_tokens_max", batch_tokens_max, 1)
    stages, ranks = layout.pipeline_parallel, layout.data_parallel
    if stages == 1:
        return None
    # Every rank has as much to do: steps take as long as those of the busiest.
    most = batch_tokens_max * ranks
    (shared,) = step_table(layout, 1, most).lines
    (alone,) = step_table(layout, 1, most, batches=1).lines
    chunks = [alone.mixed_s[n] - shared.mixed_s[n] for n in range(0, most + 1, ranks)]
    return PipelineFill(
        chunk_s=tuple(max(each, 0.0) for each in chunks),
        full_s=alone.mixed_s[most] * (stages - 1) / stages,
        pair_s=(alone.pair_s - shared.pair_s) * ranks,
    )
