"""Sizes of CUDA graphs compared: vLLM's own against the optimum, and the options that set them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

from mileage.cli.model_source import model_source
from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu
from mileage.costmodel.deployment import Deployment
from mileage.policy.graph_buckets import (
    GraphCost,
    Histogram,
    StepSeconds,
    graph_waste,
    linear_step_s,
    optimal_graph_sizes,
    vllm_graph_sizes,
)

__all__ = [
    "GraphChoice",
    "GraphComparison",
    "GraphLimits",
    "GraphStep",
    "compare_graph_sizes",
    "linear_graph_step",
    "modelled_graph_step",
]

_EAGER_EXTRA_S: Final = 3.15e-3
"""What the cost model has for launching the kernels of Llama-3.1-8B on an H100 one by one."""
_KEYS: Final = {
    "model": "--model",
    "gpu": "--gpu",
    "tensor_parallel": "--tp",
    "precision": "--weights",
}
"""The option that sets what an error of the cost model names."""


class GraphStep(msgspec.Struct, frozen=True, kw_only=True):
    """How long steps take, and where that is from."""

    source: str
    step_s: StepSeconds
    eager_extra_s: float
    """What a step takes longer without a graph."""
    context_row_s: float = 0.0
    device_bytes: float | None = None
    """Memory of one GPU; None: not known."""


class GraphLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What sizes may be: see `optimal_graph_sizes`; vLLM's own go by `max_num_seqs`."""

    max_num_seqs: int
    size_max: int
    sizes_max: int | None = None
    cover: int | None = None
    """None: the largest observed step that may have a graph."""


class GraphChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Some sizes and what they cost. Ratios are of the GPU's time."""

    sizes: tuple[int, ...]
    padding_ratio: float
    eager_ratio: float
    """Of what steps without a graph take longer."""
    eager_steps: float
    memory_bytes: float
    """Of all graphs, on each GPU."""
    start_s: float
    """To capture all of them."""
    capture_ratio: float
    """What memory and start are worth."""
    total_ratio: float


class GraphComparison(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's own sizes, the optimum, and the options that set the optimum."""

    default: GraphChoice
    optimal: GraphChoice
    flags: dict[str, str]
    """Engine and versions -> options of its server."""


def linear_graph_step(
    floor_ms: float, row_us: float, *, eager_extra_ms: float | None = None
) -> GraphStep:
    """A step takes a floor and a time for each row. Raises ConfigError, which names the option."""
    require_at_least("--floor-ms", floor_ms, 0.0)
    require_at_least("--row-us", row_us, 0.0)
    if not floor_ms and not row_us:
        raise ConfigError("--floor-ms", floor_ms, "above 0 where --row-us is 0")
    return GraphStep(
        source=f"{floor_ms:g} ms and {row_us:g} us for each row",
        step_s=linear_step_s(floor_ms * 1e-3, row_us * 1e-6),
        eager_extra_s=_eager_s(eager_extra_ms, _EAGER_EXTRA_S),
    )


def modelled_graph_step(
    model: str,
    gpu_name: str,
    rows_max: int,
    *,
    tp: int = 1,
    weights: str | None = None,
    context_tokens: int = 0,
    eager_extra_ms: float | None = None,
) -> GraphStep:
    """Times of the cost model, for up to `rows_max` rows. Raises ConfigError, which names the
    option."""
    require_at_least("--context", context_tokens, 0)
    try:
        source = model_source(model)
        deployment = Deployment(
            model=source.architecture,
            gpu=gpu(gpu_name),
            tensor_parallel=tp,
            weights=source.precision(weights),
        )
        graphed = deployment.step_table(rows_max, 1, range(1, rows_max + 1)).lines[0]
        eager = deployment.step_table(1, 1, ()).lines[0]
    except ConfigError as error:
        raise error.named(_KEYS.get(error.key, error.key)) from None
    seconds = tuple(accumulate(graphed.decode_s, max))
    count = f"{tp} x " if tp > 1 else ""
    return GraphStep(
        source="as long as the cost model says of "
        f"{source.architecture.name} on {count}{deployment.gpu.name}",
        step_s=seconds.__getitem__,
        eager_extra_s=_eager_s(eager_extra_ms, max(0.0, eager.decode_s[1] - graphed.decode_s[1])),
        context_row_s=graphed.kv_s * context_tokens,
        device_bytes=float(deployment.gpu.memory_bytes),
    )


def _eager_s(asked_ms: float | None, known_s: float) -> float:
    if asked_ms is None:
        return known_s
    require_at_least("--eager-extra-ms", asked_ms, 0.0)
    return asked_ms * 1e-3


def compare_graph_sizes(
    histogram: Histogram,
    step: GraphStep,
    cost: GraphCost,
    limits: GraphLimits,
) -> GraphComparison:
    """Both for the same steps. Raises ConfigError for limits that cannot be, with their name."""
    default = vllm_graph_sizes(limits.max_num_seqs)
    cover = limits.cover
    if cover is None:
        cover = max((rows for rows in histogram if rows <= limits.size_max), default=0)
    useful_s = sum(
        steps * (step.step_s(rows) + step.context_row_s * rows) for rows, steps in histogram.items()
    )
    optimal = optimal_graph_sizes(
        histogram,
        step.step_s,
        eager_extra_s=step.eager_extra_s,
        size_s=cost.ratio * useful_s,
        sizes_max=limits.sizes_max,
        size_max=limits.size_max,
        cover=cover,
    )
    return GraphComparison(
        default=_choice(default, histogram, step, cost),
        optimal=_choice(optimal, histogram, step, cost),
        flags=_flags(optimal),
    )


def _choice(
    sizes: tuple[int, ...], histogram: Histogram, step: GraphStep, cost: GraphCost
) -> GraphChoice:
    waste = graph_waste(
        histogram,
        sizes,
        step.step_s,
        eager_extra_s=step.eager_extra_s,
        context_row_s=step.context_row_s,
    )
    capture_ratio = cost.ratio * len(sizes)
    return GraphChoice(
        sizes=sizes,
        padding_ratio=waste.padding_ratio,
        eager_ratio=waste.eager_ratio,
        eager_steps=waste.eager_steps,
        memory_bytes=cost.memory_bytes * len(sizes),
        start_s=cost.start_s * len(sizes),
        capture_ratio=capture_ratio,
        total_ratio=waste.padding_ratio + waste.eager_ratio + capture_ratio,
    )


def _flags(sizes: Sequence[int]) -> dict[str, str]:
    """vLLM's option is of github.com/vllm-project/vllm/pull/26016, and checked against 0.32; the
    key of its configuration is older (pull/12243), and stands for the releases before: their own
    option took a single number for the largest size. SGLang 0.5.23 refuses its older option as
    ambiguous. Each release is in one range."""
    words = " ".join(map(str, sizes))
    config = msgspec.json.encode({"cudagraph_capture_sizes": sizes}).decode()
    return {
        "vLLM 0.11.1 and later": f"--cudagraph-capture-sizes {words}",
        "vLLM 0.7 to 0.11.0": f"--compilation-config '{config}'",
        "SGLang 0.5.23 and later": f"--cuda-graph-bs-decode {words}",
        "SGLang before 0.5.23": f"--cuda-graph-bs {words}",
    }
