"""Roofline report: what one step does, operator by operator, and what each is bound by."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from mileage.core.bounds import require_at_least
from mileage.core.errors import ConfigError
from mileage.costmodel.efficiency_table import FITTED
from mileage.costmodel.layout import Layout
from mileage.costmodel.memory import kv_blocks
from mileage.costmodel.operators import Load, Operator, operators
from mileage.costmodel.rates import rates
from mileage.costmodel.sizes import sizes
from mileage.costmodel.step_tables import padded

__all__ = ["Bound", "OperatorReport", "RooflineReport", "report"]

_BLOCK_TOKENS = 16
_STEP_TOKENS = 2048

Bound = Literal["compute", "memory", "interconnect", "host"]


class OperatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of kernel, all layers of the step together, on one GPU."""

    name: str
    time_s: float
    flops: float
    bytes: float
    """Read from and written to the GPU's memory."""
    link_bytes: float
    """Sent to other GPUs."""
    bound: Bound


class RooflineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One step. The operators' times add up to `step_s`."""

    model: str
    gpu: str
    gpus: int
    decoding: int
    """Requests that decode one token each."""
    context_tokens: int
    """Of each of them."""
    prefill_tokens: int
    step_s: float
    bound: Bound
    """What takes most of the step."""
    compute_utilisation_ratio: float
    """FLOPs of the step over what one GPU could do meanwhile in half precision."""
    bandwidth_utilisation_ratio: float
    kv_tokens: int
    """Of context that the step's requests have."""
    kv_tokens_max: int
    """Of context that fits in the replica's memory; 0: not even the weights do."""
    ridge_flops_per_byte: float
    """Of the GPU, in half precision: work with fewer FLOPs per byte waits for memory."""
    operators: tuple[OperatorReport, ...]
    """Those that take time, longest first."""


def report(
    layout: Layout, *, batch: int, context_tokens: int, prefill_tokens: int = 0
) -> RooflineReport:
    """One step that decodes `batch` requests and computes the last `prefill_tokens` of a prompt.

    The prompt's earlier tokens, so that its context is `context_tokens` in the end, are in the KV
    cache. Times are those of `step_table`. ConfigError for figures that cannot be.
    """
    require_at_least("batch", batch, 0)
    require_at_least("context_tokens", context_tokens, 0)
    require_at_least("prefill_tokens", prefill_tokens, 0)
    if not batch and not prefill_tokens:
        raise ConfigError("batch", batch, "at least 1 where there is no prefill")
    spread = layout.data_parallel * layout.pipeline_parallel
    row = padded(batch, None, spread) if not prefill_tokens else None
    earlier = max(context_tokens - prefill_tokens, 0)
    pairs = prefill_tokens * earlier + prefill_tokens * (prefill_tokens + 1) / 2
    load = Load(
        tokens=_one(batch + prefill_tokens if row is None else row),
        decoding=_one(batch),
        kv_tokens=_one(batch * context_tokens),
        prefill_tokens=_one(prefill_tokens),
        prefill_pairs=_one(pairs),
        eager=_one(1 if row is None else 0),
    )
    each = operators(sizes(layout), rates(layout, layout.efficiency or FITTED), load)
    found = [_operator(operator) for operator in each]
    step_s = sum(operator.time_s for operator in found)
    gpu = layout.gpu
    totals: dict[Bound, float] = {}
    for operator in found:
        totals[operator.bound] = totals.get(operator.bound, 0.0) + operator.time_s
    return RooflineReport(
        model=layout.model.name,
        gpu=gpu.name,
        gpus=layout.gpus,
        decoding=batch,
        context_tokens=context_tokens,
        prefill_tokens=prefill_tokens,
        step_s=step_s,
        bound=max(totals, key=lambda bound: totals[bound]),
        compute_utilisation_ratio=sum(o.flops for o in found) / step_s / gpu.half_tflops / 1e12,
        bandwidth_utilisation_ratio=sum(o.bytes for o in found)
        / step_s
        / gpu.bandwidth_gb_per_s
        / 1e9,
        kv_tokens=batch * context_tokens + (earlier + prefill_tokens if prefill_tokens else 0),
        kv_tokens_max=_kv_tokens_max(layout, max(batch, 1)),
        ridge_flops_per_byte=gpu.half_tflops * 1e3 / gpu.bandwidth_gb_per_s,
        operators=tuple(
            sorted(
                (operator for operator in found if operator.time_s > 0.0),
                key=lambda operator: -operator.time_s,
            )
        ),
    )


def _kv_tokens_max(layout: Layout, requests: int) -> int:
    try:
        return _BLOCK_TOKENS * kv_blocks(layout, _BLOCK_TOKENS, _STEP_TOKENS, requests)
    except ConfigError:
        return 0


def _one(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value], dtype=np.float64)


def _operator(operator: Operator) -> OperatorReport:
    kernel_s = float(max(operator.compute_s[0], operator.memory_s[0]))
    parts: dict[Bound, float] = {
        "compute": kernel_s if operator.compute_s[0] > operator.memory_s[0] else 0.0,
        "memory": kernel_s if operator.compute_s[0] <= operator.memory_s[0] else 0.0,
        "interconnect": float(operator.link_s[0]),
        "host": float(operator.host_s[0]),
    }
    return OperatorReport(
        name=operator.name,
        time_s=float(operator.seconds[0]),
        flops=float(operator.flops[0]),
        bytes=float(operator.bytes[0]),
        link_bytes=float(operator.link_bytes[0]),
        bound=max(parts, key=lambda bound: parts[bound]),
    )
