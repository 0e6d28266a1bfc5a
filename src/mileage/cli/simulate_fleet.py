"""The fleet that `mileage simulate` simulates: GPUs, engines, and what they cost by whom."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from mileage.cli.calibration_file import CalibrationFile, read_calibration
from mileage.cli.model_source import model_source
from mileage.cli.scenario_file import SharingConfig
from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_features import Features, Limits
from mileage.cli.simulate_price import price_of
from mileage.control.config import CostsConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.costmodel.calibration import calibrated
from mileage.costmodel.catalogue import gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.layout import Engine
from mileage.costmodel.pipeline_fill import PipelineFill
from mileage.costmodel.precision import KvPrecision
from mileage.costmodel.step_table import StepTable
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_defaults import default_limits
from mileage.sim.node import ReplicaSpec
from mileage.sim.scaling import ScalingConfig

__all__ = ["Fleet", "check_replicas", "deployment_of", "engines_of", "fleet_of"]

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
}
"""The option that sets what an error of the cost model names."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Equal replicas of one model on one kind of GPU."""

    name: str
    """Of the GPU and, beyond one, how many a replica has; and of the variant, where it is one."""
    model: str
    gpu: str
    gpus: float
    """Of one replica: those of all of its engines, or its part of the GPUs that it shares."""
    replicas: int
    layout: dict[str, int | str | float]
    """What was assumed of a replica, for the record."""
    engine: EngineConfig
    table: StepTable
    usd_per_gpu_hour: float | None
    price_source: str | None
    sharing: SharingConfig = SharingConfig()
    scaling: ScalingConfig | None = None
    variant: str | None = None
    fill: PipelineFill | None = None
    """What prompts wait for pipeline stages."""
    calibration: CalibrationFile | None = None
    """What step times were corrected by. None: they are the model's own."""
    fitted: FittedEngine | None = None
    """The engine whose records all this is from, in place of a model and a GPU."""

    @property
    def specs(self) -> list[ReplicaSpec]:
        """The replicas as the simulator takes them."""
        share, ratio = self.sharing.replicas, self.sharing.capacity_ratio
        return [
            ReplicaSpec(
                name=f"replica-{number}",
                engine=self.engine,
                table=self.table,
                models=(self.model,),
                gpus=self.gpus,
                shared_gpu=f"gpu-{number // share}" if share > 1 else None,
                shared_capacity_ratio=ratio if share > 1 else 1.0,
            )
            for number in range(self.replicas)
        ]


def engines_of(engine: EngineConfig) -> int:
    """Engines of a replica, each with GPUs of its own."""
    apart = engine.disaggregation
    return 1 if apart is None else apart.prefill_engines + apart.decode_engines


def check_replicas(replicas: int, features: Features, engine: EngineConfig) -> None:
    """Raises ConfigError where so many replicas cannot share GPUs or be scaled as is asked."""
    share = features.sharing.replicas
    if replicas % share:
        raise ConfigError("--replicas", replicas, f"a multiple of {share}: so many share a GPU")
    if share > 1 and (engines_of(engine) > 1 or engine.dp_ranks > 1):
        raise ConfigError("--share", share, "1 for a replica of several engines or ranks")
    if features.scaling is not None:
        most = max((count for _, count in features.scaling.schedule), default=0)
        if most > replicas:
            expected = f"at most --replicas ({replicas})"
            if features.schedule_is_spelled or features.document is None:
                raise ConfigError("--schedule", most, expected)
            raise features.document.placed(ConfigError("scaling.schedule", most, expected))


def fleet_of(
    arguments: RunArguments,
    gpu_name: str,
    tp: int,
    features: Features,
    costs: CostsConfig,
    slo: SloConfig,
) -> Fleet:
    """The fleet of those arguments, on such GPUs. Raises ConfigError by option: an unknown name, a
    model that does not fit, GPUs that it cannot be split over."""
    try:
        return _fleet(
            arguments, deployment_of(arguments, gpu_name, tp, features), features, costs, slo
        )
    except ConfigError as error:
        raise error.named(_KEYS.get(error.key, error.key)) from None


def deployment_of(
    arguments: RunArguments, gpu_name: str, tp: int, features: Features
) -> Deployment:
    """One engine of those arguments. Raises ConfigError by the cost model's keys."""
    assert arguments.model is not None
    kinds: dict[str, KvPrecision] = {kind: kind for kind in get_args(KvPrecision)}
    engines: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    for key, value, known in (
        ("--kv-dtype", arguments.kv_dtype, kinds),
        ("--engine", arguments.engine, engines),
    ):
        if value not in known:
            raise ConfigError(key, value, f"one of {', '.join(known)}")
    source = model_source(arguments.model)
    return Deployment(
        model=source.architecture,
        gpu=gpu(gpu_name),
        tensor_parallel=tp,
        data_parallel=arguments.dp,
        pipeline_parallel=arguments.pp,
        expert_parallel=arguments.ep,
        weights=source.precision(arguments.precision),
        kv=kinds[arguments.kv_dtype],
        engine=engines[arguments.engine],
        gpu_memory_utilization_ratio=arguments.gpu_memory / features.sharing.replicas,
    )


def _fleet(
    arguments: RunArguments,
    deployment: Deployment,
    features: Features,
    costs: CostsConfig,
    slo: SloConfig,
) -> Fleet:
    card, ranks, stages = (
        deployment.gpu,
        deployment.data_parallel,
        deployment.pipeline_parallel,
    )

    def batch_tokens(sized: EngineConfig) -> int:
        return max(1, sized.step_tokens_max // (ranks * stages))

    def kv_blocks(sized: EngineConfig) -> int:
        seqs = sized.running_max // ranks
        return deployment.kv_blocks(sized.block_tokens, batch_tokens(sized), seqs)

    limits = Limits(*_engine_limits(arguments, card), ranks, stages)
    engine = features.engine(limits, slo.of(deployment.model.name), kv_blocks)
    check_replicas(arguments.replicas, features, engine)
    if stages > 1 and not engine.chunked_prefill:
        raise ConfigError("--pp", stages, "1 without chunked_prefill: a prompt would be one batch")
    usd, source = price_of(arguments, costs, card)
    calibration = _calibration(arguments, deployment)
    gpus = deployment.gpus * engines_of(engine)
    name = card.name if gpus == 1 else f"{gpus}x {card.name}"
    return Fleet(
        name=name if features.variant is None else f"{name} ({features.variant})",
        model=deployment.model.name,
        gpu=card.name,
        gpus=gpus / features.sharing.replicas,
        replicas=arguments.replicas,
        layout=_layout(arguments, deployment),
        engine=engine,
        table=_table(deployment, engine, features, calibration),
        usd_per_gpu_hour=usd,
        price_source=source,
        sharing=features.sharing,
        scaling=features.scaling,
        variant=features.variant,
        fill=deployment.pipeline_fill(batch_tokens(engine)),
        calibration=calibration,
    )


def _layout(arguments: RunArguments, deployment: Deployment) -> dict[str, int | str | float]:
    """What is assumed of a replica, for the record."""
    found: dict[str, int | str | float] = {
        "engine_kind": deployment.engine,
        "tensor_parallel": deployment.tensor_parallel,
        "data_parallel": arguments.dp,
        "pipeline_parallel": arguments.pp,
        "expert_parallel": arguments.ep,
        "weights": deployment.weights,
        "kv": deployment.kv,
        "gpu_memory_utilization_ratio": deployment.gpu_memory_utilization_ratio,
        "weight_gb_per_gpu": round(deployment.weight_bytes / 1e9, 3),
    }
    if arguments.calibration is not None:
        found["step_times"] = f"roofline, calibrated by {arguments.calibration}"
    return found


def _calibration(arguments: RunArguments, deployment: Deployment) -> CalibrationFile | None:
    """What was measured of such an engine. Raises ConfigError where it is of another."""
    if arguments.calibration is None:
        return None
    found = read_calibration(arguments.calibration)
    own = (deployment.model.name, deployment.gpu.name, deployment.engine)
    if (found.model, found.gpu, found.engine) != own:
        expected = f"one of {', '.join(own)}: it is of {found.model}, {found.gpu}, {found.engine}"
        raise ConfigError("--calibration", str(arguments.calibration), expected)
    return found


def _table(
    deployment: Deployment,
    engine: EngineConfig,
    features: Features,
    calibration: CalibrationFile | None,
) -> StepTable:
    table = deployment.step_table(engine.rows_max, engine.step_tokens_max, features.graph_sizes)
    return table if calibration is None else calibrated(table, calibration.calibration)


def _engine_limits(arguments: RunArguments, card: Gpu) -> tuple[int, int]:
    """Requests at once and tokens of a step of an engine that is told neither."""
    for key, value in (
        ("--engine-max-seqs", arguments.engine_max_seqs),
        ("--engine-tokens", arguments.engine_tokens),
    ):
        if value is not None:
            require_range(key, value, 1, 1_000_000)
    return default_limits(card)
