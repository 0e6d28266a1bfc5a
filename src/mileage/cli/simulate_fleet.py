"""The fleet that `mileage simulate` simulates: GPUs, engines, and what they cost by whom."""

from __future__ import annotations

import statistics
from typing import Final, get_args

import msgspec

from mileage.cli.model_source import model_of
from mileage.cli.simulate_arguments import RunArguments
from mileage.control.config import CostsConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.layout import Engine
from mileage.costmodel.precision import KvPrecision, precision
from mileage.costmodel.price import gpu_prices
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.node import ReplicaSpec

__all__ = ["Fleet", "fleet_of"]

_GIB: Final = 1 << 30
_BLOCK_TOKENS: Final = 16
_PRICE_MAX_USD: Final = 1e6
_KEYS: Final = {
    "tensor_parallel": "--tp",
    "data_parallel": "--dp",
    "pipeline_parallel": "--pp",
    "expert_parallel": "--ep",
    "gpu_memory_utilization_ratio": "--gpu-memory",
    "model": "--model",
    "gpu": "--gpu",
    "precision": "--precision",
    "requests_max": "--engine-max-seqs",
    "step_tokens_max": "--engine-tokens",
    "engine.running_max": "--engine-max-seqs",
    "engine.step_tokens_max": "--engine-tokens",
    "engine.long_prefill_tokens_max": "--long-prefill",
    "engine.noise_ratio": "--noise",
}
"""The option that sets what an error of the cost model names."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Equal replicas of one model on one kind of GPU."""

    name: str
    """Of the GPU and, beyond one, how many a replica has."""
    model: str
    gpu: str
    gpus: int
    """Of one replica."""
    replicas: int
    layout: dict[str, int | str | float]
    """What was assumed of a replica, for the record."""
    engine: EngineConfig
    table: StepTable
    usd_per_gpu_hour: float | None
    price_source: str | None
    fitted: FittedEngine | None = None
    """The engine whose records all this is from, in place of a model and a GPU."""

    @property
    def specs(self) -> list[ReplicaSpec]:
        """The replicas as the simulator takes them."""
        return [
            ReplicaSpec(
                name=f"replica-{number}",
                engine=self.engine,
                table=self.table,
                models=(self.model,),
                gpus=float(self.gpus),
            )
            for number in range(self.replicas)
        ]


def fleet_of(arguments: RunArguments, gpu_name: str, tp: int, costs: CostsConfig) -> Fleet:
    """The fleet of those arguments, on such GPUs. Raises ConfigError by option: an unknown name, a
    model that does not fit, GPUs that it cannot be split over."""
    try:
        return _fleet(arguments, gpu_name, tp, costs)
    except ConfigError as error:
        key = _KEYS.get(error.key, error.key)
        raise ConfigError(key, error.value, error.expected, place=error.place) from None


def _fleet(arguments: RunArguments, gpu_name: str, tp: int, costs: CostsConfig) -> Fleet:
    assert arguments.model is not None
    kinds: dict[str, KvPrecision] = {kind: kind for kind in get_args(KvPrecision)}
    engines: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    for key, value, known in (
        ("--kv-dtype", arguments.kv_dtype, kinds),
        ("--engine", arguments.engine, engines),
    ):
        if value not in known:
            raise ConfigError(key, value, f"one of {', '.join(known)}")
    card = gpu(gpu_name)
    deployment = Deployment(
        model=model_of(arguments.model),
        gpu=card,
        tensor_parallel=tp,
        data_parallel=arguments.dp,
        pipeline_parallel=arguments.pp,
        expert_parallel=arguments.ep,
        weights=precision(arguments.precision),
        kv=kinds[arguments.kv_dtype],
        engine=engines[arguments.engine],
        gpu_memory_utilization_ratio=arguments.gpu_memory,
    )
    seqs, tokens = _engine_limits(arguments, card)
    engine = EngineConfig(
        kv_blocks=deployment.kv_blocks(_BLOCK_TOKENS, tokens, seqs),
        running_max=seqs,
        step_tokens_max=tokens,
        block_tokens=_BLOCK_TOKENS,
        long_prefill_tokens_max=arguments.long_prefill,
        prefix_cache=arguments.prefix_cache,
        noise_ratio=arguments.noise,
    )
    usd, source = _price(arguments, costs, card)
    gpus = deployment.gpus
    return Fleet(
        name=card.name if gpus == 1 else f"{gpus}x {card.name}",
        model=deployment.model.name,
        gpu=card.name,
        gpus=gpus,
        replicas=arguments.replicas,
        layout={
            "engine_kind": deployment.engine,
            "tensor_parallel": tp,
            "data_parallel": arguments.dp,
            "pipeline_parallel": arguments.pp,
            "expert_parallel": arguments.ep,
            "weights": deployment.weights,
            "kv": deployment.kv,
            "gpu_memory_utilization_ratio": arguments.gpu_memory,
            "weight_gb_per_gpu": round(deployment.weight_bytes / 1e9, 3),
        },
        engine=engine,
        table=deployment.step_table(seqs, tokens),
        usd_per_gpu_hour=usd,
        price_source=source,
    )


def _engine_limits(arguments: RunArguments, card: Gpu) -> tuple[int, int]:
    """Requests at once and tokens of a step: as given, else as vLLM's server chooses by the GPU.

    vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults (0.11 and later).
    """
    if card.memory_bytes >= 160 * _GIB:
        seqs, tokens = 1024, 16384
    elif card.memory_bytes >= 70 * _GIB and not card.name.startswith("A100"):
        seqs, tokens = 1024, 8192
    else:
        seqs, tokens = 256, 2048
    given = arguments.engine_max_seqs, arguments.engine_tokens
    for key, value in zip(("--engine-max-seqs", "--engine-tokens"), given, strict=True):
        if value is not None:
            require_range(key, value, 1, 1_000_000)
    if given[1] is not None and given[0] is None:
        seqs = min(seqs, given[1])
    return given[0] or seqs, given[1] or max(tokens, given[0] or 0)


def _price(
    arguments: RunArguments, costs: CostsConfig, card: Gpu
) -> tuple[float | None, str | None]:
    """USD per GPU and hour, and where that is from."""
    if arguments.price is not None:
        require_range("--price", arguments.price, 0.0, _PRICE_MAX_USD)
        return arguments.price, "--price"
    if costs.usd_per_gpu_hour is not None:
        return costs.usd_per_gpu_hour, "costs.usd_per_gpu_hour of the configuration"
    offers = gpu_prices(card)
    if not offers:
        return None, None
    usd = statistics.median(offer.usd_per_gpu_hour for offer in offers)
    low, high = offers[0], offers[-1]
    if low is high:
        return usd, f"{low.provider}, on demand ({low.source}, {low.date})"
    of_low = f"{low.usd_per_gpu_hour:g} ({low.provider}, {low.date})"
    of_high = f"{high.usd_per_gpu_hour:g} ({high.provider}, {high.date})"
    return usd, f"median of {len(offers)} public prices on demand, {of_low} to {of_high}"
