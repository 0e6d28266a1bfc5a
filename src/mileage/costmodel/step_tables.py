"""Step tables of the roofline model: the seconds of every step that a layout can be asked for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np

from mileage.core.bounds import require_at_least
from mileage.costmodel.efficiency_table import FITTED
from mileage.costmodel.layout import Layout
from mileage.costmodel.operators import Array, Load, operators
from mileage.costmodel.rates import rates
from mileage.costmodel.sizes import sizes
from mileage.costmodel.step_table import StepLine, StepTable

__all__ = ["GRAPH_SIZES", "padded", "step_seconds", "step_table"]

GRAPH_SIZES: Final = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Batch sizes that vLLM captures as CUDA graphs (vllm/config/compilation.py)."""
_KV_TOKENS: Final = 1e6
"""Of context, and pairs, that slopes are taken over."""


def padded(count: int, graph_sizes: Sequence[int] | None, spread: int = 1) -> int | None:
    """The batch size that a step of `count` requests is computed at; None: without a graph.

    `spread`: batches that the requests are spread over, each with a graph of its own.
    """
    sizes_ = GRAPH_SIZES if graph_sizes is None else graph_sizes
    at = bisect_left(sizes_, math.ceil(count / spread))
    return sizes_[at] * spread if at < len(sizes_) else None


def step_seconds(layout: Layout, load: Load, *, batches: int | None = None) -> Array:
    """Seconds of each step of `load`; `batches` as of `sizes`."""
    size = sizes(layout, batches=batches)
    each = operators(size, rates(layout, layout.efficiency or FITTED), load)
    total: Array = np.sum([operator.seconds for operator in each], axis=0)
    return total


def step_table(
    layout: Layout,
    requests_max: int,
    step_tokens_max: int,
    graph_sizes: Sequence[int] | None = None,
    *,
    batches: int | None = None,
) -> StepTable:
    """The table for steps of up to so many requests and tokens; see `Deployment.step_table`."""
    require_at_least("requests_max", requests_max, 1)
    require_at_least("step_tokens_max", step_tokens_max, 1)
    spread = layout.data_parallel * (layout.pipeline_parallel if batches is None else batches)
    captured = sorted(GRAPH_SIZES if graph_sizes is None else set(graph_sizes))
    counts = np.arange(requests_max + 1, dtype=np.float64)
    rows = [padded(count, captured, spread) for count in range(requests_max + 1)]
    graphed = np.array([0.0 if row is None else 1.0 for row in rows])
    zero = np.zeros_like(counts)
    decode = Load(
        tokens=np.array([n if row is None else row for n, row in enumerate(rows)], np.float64),
        decoding=counts,
        kv_tokens=zero,
        prefill_tokens=zero,
        prefill_pairs=zero,
        eager=1.0 - graphed,
    )
    tokens = np.arange(step_tokens_max + requests_max + 1, dtype=np.float64)
    none = np.zeros_like(tokens)
    mixed = Load(tokens, none, none, tokens, none, none + 1.0)

    def seconds(load: Load) -> Array:
        return step_seconds(layout, load, batches=batches)

    one = np.ones(1)
    base = Load(one, 0 * one, 0 * one, 0 * one, 0 * one, one)
    # As many requests as the slopes hold for. Prompt tokens of a step are its tokens but for those
    # of decoding requests.
    many = base._replace(decoding=one * spread)
    start_s, many_s = float(seconds(base)[0]), float(seconds(many)[0])
    request_s = (many_s - start_s) / spread
    prefill_s = float(seconds(base._replace(prefill_tokens=one))[0]) - start_s
    kv_s = float(seconds(many._replace(kv_tokens=one * _KV_TOKENS))[0]) - many_s
    pair_s = float(seconds(base._replace(prefill_pairs=one * _KV_TOKENS))[0]) - start_s
    line = StepLine(
        decode_s=tuple(seconds(decode).tolist()),
        mixed_s=tuple(seconds(mixed).tolist()),
        request_s=request_s - prefill_s,
        kv_s=kv_s / _KV_TOKENS,
        pair_s=pair_s / _KV_TOKENS,
        spread=spread,
    )
    return StepTable(lines=(line,))
