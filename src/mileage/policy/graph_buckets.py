"""Sizes to capture CUDA graphs at: the exact optimum for the batch sizes that were observed.

A step of n rows replays the graph of the next larger captured size: the rows between are computed
in vain. Each further size makes padding less, and takes memory and time at the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.core.bounds import require_at_least, require_positive, require_range

__all__ = [
    "GRAPH_SIZE_MAX",
    "VLLM_SIZE_MAX",
    "GraphCost",
    "GraphWaste",
    "Histogram",
    "StepSeconds",
    "graph_waste",
    "linear_step_s",
    "optimal_graph_sizes",
    "vllm_graph_sizes",
]

GRAPH_SIZE_MAX: Final = 4096
"""The largest size that is considered: the table of costs has its square in cells."""
VLLM_SIZE_MAX: Final = 512
"""vLLM's own sizes end here, but for data-centre Blackwell."""

Histogram: TypeAlias = Mapping[int, float]
"""Rows of a step -> how many steps had so many."""
StepSeconds: TypeAlias = Callable[[int], float]
"""Rows of a step -> its seconds with a graph of that size; must not fall as rows grow."""
_Costs: TypeAlias = NDArray[np.float64]

_MIB: Final = 1 << 20


class GraphCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one captured size costs, as a share of the GPU's time.

    The defaults are what vLLM logged for each size of Llama-3.1-8B: some 26 MiB and 0.057 s
    (github.com/vllm-project/vllm/pull/22897). Memory is worth its share of what the GPU is worth,
    as it is taken from the KV cache; start-up is spread over the time until the next start.
    """

    memory_bytes: float = 26.0 * _MIB
    start_s: float = 0.057
    device_bytes: float = 80e9
    horizon_s: float = 86_400.0

    def __post_init__(self) -> None:
        require_at_least("memory_bytes", self.memory_bytes, 0.0)
        require_at_least("start_s", self.start_s, 0.0)
        require_positive("device_bytes", self.device_bytes, "bytes")
        require_positive("horizon_s", self.horizon_s)

    @property
    def ratio(self) -> float:
        """Of the GPU's time, for one size."""
        return self.memory_bytes / self.device_bytes + self.start_s / self.horizon_s


class GraphWaste(msgspec.Struct, frozen=True, kw_only=True):
    """Where the GPU's seconds of all observed steps go with some captured sizes."""

    useful_s: float
    """What the steps would take at their own size."""
    padding_s: float
    """What rows take that are computed in vain."""
    eager_s: float
    """What steps take longer that have no graph."""
    eager_steps: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.useful_s + self.padding_s + self.eager_s

    @property
    def padding_ratio(self) -> float:
        """Padding's share of all."""
        return self.padding_s / self.total_s

    @property
    def eager_ratio(self) -> float:
        """The share of what steps without a graph take longer."""
        return self.eager_s / self.total_s


def vllm_graph_sizes(
    max_num_seqs: int, *, step_tokens_max: int | None = None, size_max: int = VLLM_SIZE_MAX
) -> tuple[int, ...]:
    """The sizes that vLLM 0.32 captures where none are given (vllm/config/vllm.py,
    `_set_cudagraph_sizes`), without speculative decoding.

    1, 2, 4, from 8 by 8 below 256, then by 16 up to 2 * `max_num_seqs`, at most `size_max` (512;
    1024 on data-centre Blackwell), `max_num_seqs` itself, and `step_tokens_max` where it is lower.
    """
    require_at_least("max_num_seqs", max_num_seqs, 1)
    highest = min(2 * max_num_seqs, size_max)
    tokens = highest if step_tokens_max is None else step_tokens_max
    require_at_least("step_tokens_max", tokens, 1)
    grid = (1, 2, 4, *range(8, 256, 8), *range(256, highest + 1, 16), max_num_seqs)
    limit = min(highest, tokens)
    found = {size for size in grid if size <= limit}
    if step_tokens_max is not None and step_tokens_max <= highest:
        found.add(step_tokens_max)
    return tuple(sorted(found))


def linear_step_s(floor_s: float = 7.46e-3, row_s: float = 1.05e-5) -> StepSeconds:
    """A step takes `floor_s`, reading the weights, and `row_s` for each row.

    The defaults are what the cost model gives for Llama-3.1-8B on an H100 with up to 128 rows.
    """
    require_at_least("floor_s", floor_s, 0.0)
    require_at_least("row_s", row_s, 0.0)
    return lambda rows: floor_s + row_s * rows


def graph_waste(
    histogram: Histogram,
    sizes: Sequence[int],
    step_s: StepSeconds,
    *,
    eager_extra_s: float,
    context_row_s: float = 0.0,
) -> GraphWaste:
    """What is lost with these sizes, in ascending order.

    `eager_extra_s`: what a step takes longer without a graph. `context_row_s`: what attention to
    its context takes for each row besides; rows of padding have none.
    """
    useful_s = padding_s = eager_steps = 0.0
    for rows, steps in histogram.items():
        own_s = step_s(rows)
        useful_s += steps * (own_s + context_row_s * rows)
        at = bisect_left(sizes, rows)
        if at < len(sizes):
            padding_s += steps * (step_s(sizes[at]) - own_s)
        else:
            eager_steps += steps
    return GraphWaste(
        useful_s=useful_s,
        padding_s=padding_s,
        eager_s=eager_steps * eager_extra_s,
        eager_steps=eager_steps,
    )


def optimal_graph_sizes(
    histogram: Histogram,
    step_s: StepSeconds,
    *,
    eager_extra_s: float,
    size_s: float = 0.0,
    sizes_max: int | None = None,
    size_max: int = VLLM_SIZE_MAX,
    cover: int = 0,
) -> tuple[int, ...]:
    """The sizes, one at least, with the least of padding, eager steps and `size_s` for each size.

    `size_s`: seconds that a size costs over all observed steps (`GraphCost.ratio` of them). At most
    `sizes_max` sizes, none above `size_max`; steps of up to `cover` rows must have a graph.

    As a step never gets shorter with more rows, a size that nobody had is no better than the
    largest observed one below it: so the candidates are the observed ones and `cover`. A dynamic
    programme over them is exact: the best sizes up to one that is the last are those up to the one
    before it, and what pads to it. Takes time with the square of the candidates, times `sizes_max`.
    """
    require_range("size_max", size_max, 1, GRAPH_SIZE_MAX)
    require_range("cover", cover, 0, size_max)
    if sizes_max is not None:
        require_at_least("sizes_max", sizes_max, 1)
    observed = {rows: steps for rows, steps in histogram.items() if rows <= size_max and steps > 0}
    if cover:
        observed.setdefault(cover, 0.0)
    if not observed:
        return (1,)
    rows = sorted(observed)
    steps = np.array([observed[each] for each in rows])
    costs = _padding_costs(steps, np.array([step_s(each) for each in rows]))
    eager_s = eager_extra_s * (steps.sum() - np.cumsum(steps))
    eager_s[: bisect_left(rows, cover)] = np.inf
    chosen = _unlimited(costs, eager_s, size_s)
    if sizes_max is not None and len(chosen) > sizes_max:
        chosen = _limited(costs, eager_s, size_s, sizes_max)
    return tuple(rows[each - 1] for each in chosen)


def _padding_costs(steps: _Costs, seconds: _Costs) -> _Costs:
    """[i, j]: padding in seconds where candidates i + 1 to j are computed at the size of j."""
    before = np.concatenate(([0.0], np.cumsum(steps)))
    before_s = np.concatenate(([0.0], np.cumsum(steps * seconds)))
    size_s = np.concatenate(([0.0], seconds))
    costs = (before[None, :] - before[:, None]) * size_s[None, :]
    costs -= before_s[None, :] - before_s[:, None]
    np.maximum(costs, 0.0, out=costs)
    costs[np.tril_indices(len(before))] = np.inf
    return costs


def _unlimited(costs: _Costs, eager_s: _Costs, size_s: float) -> list[int]:
    """The candidates, counted from 1, that are best where any number is allowed."""
    count = len(eager_s)
    best = np.zeros(count + 1)
    previous = np.zeros(count + 1, dtype=np.int64)
    for last in range(1, count + 1):
        options = best[:last] + costs[:last, last]
        previous[last] = options.argmin()
        best[last] = options[previous[last]] + size_s
    chosen = [int((best[1:] + eager_s).argmin()) + 1]
    while before := int(previous[chosen[-1]]):
        chosen.append(before)
    return chosen[::-1]


def _limited(costs: _Costs, eager_s: _Costs, size_s: float, sizes_max: int) -> list[int]:
    """The same with `sizes_max` of them at most."""
    count = len(eager_s)
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    layers: list[NDArray[np.int64]] = []
    least_s, ends = np.inf, (0, 0)
    for number in range(1, min(sizes_max, count) + 1):
        options = best[:, None] + costs
        layers.append(options.argmin(axis=0))
        best = options.min(axis=0) + size_s
        total_s = best[1:] + eager_s
        last = int(total_s.argmin())
        if total_s[last] < least_s:
            least_s, ends = float(total_s[last]), (number, last + 1)
    number, last = ends
    chosen = []
    for layer in reversed(layers[:number]):
        chosen.append(last)
        last = int(layer[last])
    return chosen[::-1]
