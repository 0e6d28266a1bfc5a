"""A fitted engine in place of a GPU and a model: `mileage simulate --engine fitted.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_features import Features, Limits
from mileage.cli.simulate_fleet import Fleet, check_replicas, engines_of
from mileage.control.config import CostsConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.sim.engine_config import EngineConfig
from mileage.sim.simulation import SimResult
from mileage.workload.trace_request import TraceRequest

__all__ = [
    "beyond_seen",
    "fitted_engine",
    "fitted_fleet",
    "is_fitted",
    "without_shared",
]

_SUFFIX: Final = ".json"
_FILE_BYTES_MAX: Final = 1 << 20
_CONTEXT_TOKENS: Final = 131_072
"""Room of each request where nobody knows how much the engine's cache holds: the longest context
of most models, so that memory is no limit."""
_TERMS_MAX_S: Final = (60.0, 60.0, 1.0, 1.0)
"""Of a step, a request, a token of context and a prompt token: slower ones are a damaged file, and
a simulation of them would not end."""
_UNUSED: Final = {
    "model": None,
    "gpu": None,
    "tp": "1",
    "dp": 1,
    "pp": 1,
    "ep": 1,
    "precision": None,
    "kv_dtype": "bf16",
    "gpu_memory": 0.9,
    "calibration": None,
}
"""Options that say what step times are computed from, with their defaults."""


def is_fitted(engine: str) -> bool:
    """Whether `--engine` names a file of `mileage simulate fit`."""
    return engine.endswith(_SUFFIX)


def fitted_engine(path: str) -> FittedEngine:
    """The engine in that file. Raises ConfigError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        expected = f"a file of `mileage simulate fit` ({error.strerror or error})"
        raise ConfigError("--engine", path, expected) from None
    try:
        fitted = FittedEngine.from_json(data)
    except ConfigError as error:
        raise ConfigError("--engine", path, f"{error.expected} ({error.key})") from None
    for plane in fitted.steps.planes:
        if any(term_s > most_s for term_s, most_s in zip(plane, _TERMS_MAX_S, strict=True)):
            expected = f"step times that an engine can have: at most {_TERMS_MAX_S} s (planes)"
            raise ConfigError("--engine", path, expected)
    return fitted


def fitted_fleet(
    arguments: RunArguments, features: Features, costs: CostsConfig, slo: SloConfig
) -> Fleet:
    """Equal replicas of the engine in `--engine`. Raises ConfigError by option."""
    path = arguments.engine
    for name, default in _UNUSED.items():
        value = getattr(arguments, name)
        if value != default:
            key = f"--{name.replace('_', '-')}"
            raise ConfigError(key, value, f"none: step times are those of {path}")
    fitted = fitted_engine(path)
    for key, limit in (
        ("--engine-max-seqs", arguments.engine_max_seqs),
        ("--engine-tokens", arguments.engine_tokens),
    ):
        if limit is not None:
            require_range(key, limit, 1, 1_000_000)
    shared = fitted.shared_prompt_tokens

    def kv_blocks(sized: EngineConfig) -> int:
        # What all share is left out of every prompt, and of each one's room.
        tokens = fitted.kv_tokens_max or sized.running_max * _CONTEXT_TOKENS
        return max(1, (tokens - shared * sized.running_max) // sized.block_tokens)

    own = {"block_tokens": 1, "noise_ratio": fitted.noise_ratio}
    engine = replace(features, written={**own, **features.written}).engine(
        Limits(fitted.running_max, max(fitted.step_tokens_max, fitted.running_max)),
        slo.of(fitted.model),
        kv_blocks,
    )
    check_replicas(arguments.replicas, features, engine)
    usd, source = arguments.price, "--price"
    if usd is None:
        usd, source = costs.usd_per_gpu_hour, "costs.usd_per_gpu_hour of the configuration"
    name = fitted.steps.engine or Path(path).stem
    return Fleet(
        name=name if features.variant is None else f"{name} ({features.variant})",
        model=fitted.model,
        gpu=name,
        gpus=engines_of(engine) / features.sharing.replicas,
        replicas=arguments.replicas,
        layout={
            "engine_kind": path,
            "weights": "as measured",
            "step_times": f"fitted to {fitted.steps.samples} {fitted.kind}",
            "step_error_ratio": fitted.steps.error_ratio,
            "first_token_s": fitted.first_token_s,
            "shared_prompt_tokens": shared,
        },
        engine=engine,
        table=fitted.step_table(engine.rows_max, engine.step_tokens_max),
        usd_per_gpu_hour=usd,
        price_source=source if usd is not None else None,
        sharing=features.sharing,
        scaling=features.scaling,
        variant=features.variant,
        fitted=fitted,
    )


def without_shared(requests: Iterable[TraceRequest], engine: str) -> Iterator[TraceRequest]:
    """The requests without what the fitted engine finds of every prompt: its steps' times have it.

    Those whose prefixes the trace knows are as they were.
    """
    shared = fitted_engine(engine).shared_prompt_tokens
    for request in requests:
        if request.prefix_blocks or not shared:
            yield request
        else:
            yield replace(request, prompt_tokens=max(1, request.prompt_tokens - shared))


def beyond_seen(fleet: Fleet, result: SimResult) -> list[str]:
    """How far the simulation went beyond what its engine was learned from, for people."""
    if fleet.fitted is None or not len(result.outcomes):
        return []
    seen, out, shared = fleet.fitted.seen, result.outcomes, fleet.fitted.shared_prompt_tokens
    running = min(fleet.engine.running_max, int(result.series.peak("running") or 0))
    reached = {
        "requests at once": (running, seen.running_max),
        "tokens of context": (
            max(each.kv_blocks_peak for each in result.replicas),
            seen.kv_tokens_max,
        ),
        "prompt tokens": (max(out.prompt_tokens) + shared, seen.prompt_tokens_max),
        "output tokens": (max(out.output_tokens), seen.output_tokens_max),
    }
    return [
        f"up to {most:,} {what}, where at most {known:,} were seen"
        for what, (most, known) in reached.items()
        if most > known
    ]
