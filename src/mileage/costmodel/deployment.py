"""Deployment: one model on some GPUs, with the memory and the step times that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

from mileage.costmodel import memory, step_tables
from mileage.costmodel.layout import Layout
from mileage.costmodel.pipeline_fill import PipelineFill, pipeline_fill
from mileage.costmodel.step_table import StepTable

__all__ = ["Deployment"]


class Deployment(Layout, frozen=True, kw_only=True):
    """A `Layout`, and what follows from it. Raises ConfigError for what cannot be split so."""

    @property
    def weight_bytes(self) -> float:
        """Of the weights, on the GPU that holds the most of them."""
        return memory.weights_bytes(self)

    def kv_blocks(self, block_tokens: int, step_tokens_max: int, requests_max: int) -> int:
        """Blocks of the KV cache, of `block_tokens` each, of all data-parallel ranks together; the
        limits are those of each rank, and tokens those of one batch of a pipeline.

        ConfigError where the model does not fit; it tells what is missing and what would do.
        """
        return memory.kv_blocks(self, block_tokens, step_tokens_max, requests_max)

    def step_table(
        self,
        requests_max: int,
        step_tokens_max: int,
        graph_sizes: Sequence[int] | None = None,
    ) -> StepTable:
        """How long steps take, for up to `requests_max` requests and `step_tokens_max` tokens.

        `graph_sizes`: batch sizes with a captured CUDA graph; None: the engine's usual ones; empty:
        none. A larger batch, and a step with prompt tokens, launches its kernels one by one.

        Requests are of all data-parallel ranks together, and of all batches that are in the
        pipeline at a time; so are tokens.
        """
        return step_tables.step_table(self, requests_max, step_tokens_max, graph_sizes)

    def pipeline_fill(self, batch_tokens_max: int) -> PipelineFill | None:
        """What a prompt takes longer than its steps, for the stages are passed in turn; None with
        one stage. `batch_tokens_max`: of one batch, on one data-parallel rank."""
        return pipeline_fill(self, batch_tokens_max)
