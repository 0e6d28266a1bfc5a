"""What the compiled path can do, and what it leaves to the Python path."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from mileage.control.config import ControlConfig
from mileage.core.errors import TraceError
from mileage.sim.fast.jit import MISSING
from mileage.sim.node import ReplicaSpec
from mileage.sim.simulation import SimConfig
from mileage.workload.columns import TraceColumns
from mileage.workload.trace_request import TraceRequest

__all__ = ["check_columns", "not_in_columns", "supports", "unsupported"]

_TOKENS_MAX = 1_000_000
_PLAIN = TraceRequest(arrived_s=0.0, prompt_tokens=1, output_tokens=1)
_IN_COLUMNS = ("arrived_s", "prompt_tokens", "output_tokens", "prefix_blocks", "block_tokens")
_PLAIN_FIELDS = tuple(
    (name, getattr(_PLAIN, name))
    for name in TraceRequest.__struct_fields__
    if name not in _IN_COLUMNS
)
_ENGINE_KEYS = frozenset(
    {
        "kv_blocks",
        "running_max",
        "step_tokens_max",
        "block_tokens",
        "long_prefill_tokens_max",
        "prefix_cache",
        "whole_prompt_fits",
        "watermark_ratio",
        "context_tokens_max",
    }
)
_REPLICA_KEYS = frozenset({"name", "engine", "table", "models", "gpus"})
_SIM_KEYS = frozenset({"seed", "scrape_interval_s", "prompt_error_ratio", "in_flight_max"})
"""What the kernel simulates whatever its value; of all else only the defaults."""


def supports(
    replicas: Sequence[ReplicaSpec], control: ControlConfig, config: SimConfig
) -> str | None:
    """Why such a fleet cannot be simulated by the compiled path; None: it can."""
    governor, slo = control.governor, control.slo.of(replicas[0].models[0])
    engines = [spec.engine for spec in replicas]
    for name, found in (
        (MISSING, MISSING is not None),
        ("two replicas have one name", len({spec.name for spec in replicas}) < len(replicas)),
        ("replicas serve different models", len({spec.models for spec in replicas}) > 1),
        (
            "engines have policies of their own (prefill)",
            any(getattr(e, "prefill", None) for e in engines),
        ),
        (
            "requests are spread over ranks or stages (--dp, --pp)",
            any(line.spread > 1 for spec in replicas for line in spec.table.lines),
        ),
        ("steps have noise (noise_ratio)", any(e.noise_ratio for e in engines)),
        ("clients leave (patience_s)", config.patience_s is not None),
        ("tenants have limits or weights", bool(control.tenants)),
        ("requests are not routed by affinity", control.routing.policy != "affinity"),
        ("the governor observes only", governor.mode == "observe"),
        (
            "targets follow the prompt (slo.ttft_unloaded_ratio)",
            slo.ttft_s is not None and slo.ttft_unloaded_ratio is not None,
        ),
        (
            "what is late goes by the engines' order (model.engine_policies)",
            slo.ttft_s is not None
            and governor.policy == "model"
            and governor.model.engine_policies,
        ),
    ):
        if found:
            return name
    for spec in replicas:
        key = _beyond(spec.engine, _ENGINE_KEYS) or _beyond(spec, _REPLICA_KEYS)
        if key is not None:
            return f"an engine has what only the Python path simulates ({key})"
    key = _beyond(config, _SIM_KEYS)
    return None if key is None else f"only the Python path simulates it ({key})"


def _beyond(settings: msgspec.Struct, handled: Collection[str]) -> str | None:
    """A key of the settings that is not handled, and does not have its default; None: none."""
    for field in msgspec.structs.fields(settings):
        if field.name not in handled and getattr(settings, field.name) != field.default:
            return field.name
    return None


def unsupported(
    columns: TraceColumns,
    replicas: Sequence[ReplicaSpec],
    control: ControlConfig,
    config: SimConfig,
) -> str | None:
    """Why the compiled path cannot take these requests on such a fleet; None: it can."""
    why = supports(replicas, control, config)
    if why is not None or not len(columns):
        return why
    if int(max(columns.prompt_tokens.max(), columns.output_tokens.max())) > _TOKENS_MAX:
        return f"a request has more than {_TOKENS_MAX:,} tokens"
    if len(columns.blocks):
        sizes = set(np.unique(columns.block_tokens[np.diff(columns.offsets) > 0]).tolist())
        if len(sizes) > 1:
            return "the trace has prefix blocks of different sizes"
        if len({s.engine.block_tokens for s in replicas if s.engine.prefix_cache}) > 1:
            return "engines have prefix caches with blocks of different sizes"
    return None


def not_in_columns(request: TraceRequest) -> str | None:
    """The field of a request that columns cannot hold, and that makes a difference; None: none."""
    for name, plain in _PLAIN_FIELDS:
        if getattr(request, name) != plain:
            return name
    return None


def check_columns(columns: TraceColumns) -> None:
    """Raises TraceError for the first request that no trace may have: as `arrivals.checked`."""
    arrived_s = columns.arrived_s
    last_s = np.concatenate((np.zeros(min(1, len(arrived_s))), arrived_s[:-1]))
    timely = (last_s <= arrived_s) & (arrived_s < np.inf)
    prompts, outputs = columns.prompt_tokens >= 1, columns.output_tokens >= 1
    wrong = np.flatnonzero(~(timely & prompts & outputs))
    if not len(wrong):
        return
    at = int(wrong[0])
    if not timely[at]:
        message = f"arrived_s {float(arrived_s[at])} after {float(last_s[at])}"
    elif not prompts[at]:
        message = f"prompt_tokens {columns.prompt_tokens[at]}, not 1 or more"
    else:
        message = f"output_tokens {columns.output_tokens[at]}, not 1 or more"
    raise TraceError("trace", at + 1, message)
