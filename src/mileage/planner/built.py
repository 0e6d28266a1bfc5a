"""Builder: what a candidate comes to: memory, step times, and replicas for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.calibration import Calibration, calibrated
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.layout import Engine
from mileage.costmodel.memory import MemoryUse, memory_use
from mileage.costmodel.pipeline_fill import PipelineFill
from mileage.costmodel.step_table import StepTable
from mileage.planner.candidate import Candidate
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import DisaggregationConfig, KvTierConfig
from mileage.sim.node import ReplicaSpec

__all__ = ["BLOCK_TOKENS", "Builder", "Built"]

BLOCK_TOKENS: Final = 16
_NETWORK_GB_PER_S: Final = 50.0
"""One direction, per GPU: an InfiniBand port of 400 Gb/s. As of `costmodel.rates`."""
_MODEL: Final = "model"
_Key: TypeAlias = tuple[object, ...]
T = TypeVar("T")


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that fits."""

    candidate: Candidate
    deployment: Deployment
    """Of one engine."""
    memory: MemoryUse
    """Bytes of one GPU; `kv` is what blocks are made of."""
    engine: EngineConfig
    table: StepTable
    fill: PipelineFill | None
    """What prompts wait for pipeline stages."""

    @property
    def kv_tokens(self) -> int:
        """Of context that a replica has room for; of engines apart: one that decodes."""
        return self.engine.kv_blocks * self.engine.block_tokens

    def specs(self, models: Sequence[str] = (_MODEL,)) -> list[ReplicaSpec]:
        """The fleet as the simulator takes it: so many replicas for each of the models."""
        candidate, sharing = self.candidate, self.candidate.sharing
        together = sharing is not None and sharing.mode != "mig"
        share = 1 if sharing is None else sharing.replicas
        gpus = candidate.engine_gpus * candidate.engines / share
        return [
            ReplicaSpec(
                name=f"replica-{at * candidate.replicas + number}",
                engine=self.engine,
                table=self.table,
                models=(model,),
                gpus=gpus,
                shared_gpu=f"gpu-{at}-{number // share}" if together else None,
                shared_capacity_ratio=(
                    sharing.capacity_ratio if together and sharing is not None else 1.0
                ),
            )
            for at, model in enumerate(models)
            for number in range(candidate.replicas)
        ]


@dataclass(slots=True, kw_only=True)
class Builder:
    """Builds candidates of one model; layouts that several have in common are worked out once."""

    model: Architecture
    engine: Engine = "vllm"
    gpu_memory_ratio: float = 0.9
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    """What was learned of real engines, by the GPU's name; without one the fitted model is as it
    is."""
    _tables: dict[_Key, StepTable] = field(default_factory=dict, init=False, repr=False)
    _fills: dict[_Key, PipelineFill | None] = field(default_factory=dict, init=False, repr=False)

    def deployment(self, candidate: Candidate) -> Deployment:
        """Of one engine. ConfigError for what cannot be split so."""
        sharing, card = candidate.sharing, known_gpu(candidate.gpu)
        ratio = self.gpu_memory_ratio
        if sharing is not None:
            if sharing.mode == "mig":
                card = _part_of(card, sharing.replicas)
            else:
                ratio /= sharing.replicas
        return Deployment(
            model=self.model,
            gpu=card,
            tensor_parallel=candidate.tensor_parallel,
            data_parallel=candidate.data_parallel,
            pipeline_parallel=candidate.pipeline_parallel,
            expert_parallel=candidate.expert_parallel,
            weights=candidate.weights,
            kv=candidate.kv,
            engine=self.engine,
            gpu_memory_utilization_ratio=ratio,
        )

    def check(self, candidate: Candidate) -> EngineConfig:
        """The engine, where there can be one. Raises ConfigError, with what is wrong, for a model
        that does not fit, GPUs that it cannot be split over, and features that are not simulated
        together."""
        return self._engine(candidate, self.deployment(candidate))

    def build(self, candidate: Candidate) -> Built:
        """All of it, step times with it. Raises ConfigError as `check` does."""
        deployment = self.deployment(candidate)
        engine = self._engine(candidate, deployment)
        limits = candidate.step_tokens_max, candidate.running_max
        return Built(
            candidate=candidate,
            deployment=deployment,
            memory=memory_use(deployment, *limits),
            engine=engine,
            table=self._table(deployment, engine, candidate),
            fill=self._fill(deployment, candidate),
        )

    def _engine(self, candidate: Candidate, deployment: Deployment) -> EngineConfig:
        stages, ranks = candidate.pipeline_parallel, candidate.data_parallel
        if stages > 1 and not candidate.chunked_prefill:
            expected = "1 without chunked_prefill: a prompt would be one batch"
            raise ConfigError("pipeline_parallel", stages, expected)
        blocks = deployment.kv_blocks(
            BLOCK_TOKENS, candidate.step_tokens_max, candidate.running_max
        )
        return EngineConfig(
            kv_blocks=blocks,
            running_max=candidate.running_max * ranks,
            step_tokens_max=candidate.step_tokens_max * ranks * stages,
            block_tokens=BLOCK_TOKENS,
            chunked_prefill=candidate.chunked_prefill,
            prefix_cache=candidate.prefix_cache,
            speculation=candidate.speculation,
            disaggregation=_apart(candidate, deployment),
            kv_tiers=_tiers(candidate, deployment),
            adapters=candidate.adapters,
            dp_ranks=ranks,
        )

    def _table(
        self, deployment: Deployment, engine: EngineConfig, candidate: Candidate
    ) -> StepTable:
        sizes: Sequence[int] | None = None
        if candidate.graph_sizes != "default":
            sizes = () if candidate.graph_sizes == "none" else candidate.graph_sizes

        def make() -> StepTable:
            table = deployment.step_table(engine.rows_max, engine.step_tokens_max, sizes)
            learned = self.calibrations.get(candidate.gpu)
            return table if learned is None else calibrated(table, learned)

        limits = engine.rows_max, engine.step_tokens_max, candidate.graph_sizes
        return _cached(self._tables, (*_layout_key(candidate), *limits), make)

    def _fill(self, deployment: Deployment, candidate: Candidate) -> PipelineFill | None:
        if candidate.pipeline_parallel == 1:
            return None
        most = candidate.step_tokens_max
        key = (*_layout_key(candidate), most)
        return _cached(self._fills, key, lambda: deployment.pipeline_fill(most))


def _cached(kept: dict[_Key, T], key: _Key, make: Callable[[], T]) -> T:
    if key not in kept:
        kept[key] = make()
    return kept[key]


def _layout_key(candidate: Candidate) -> _Key:
    """What step times depend on, limits apart."""
    sharing = candidate.sharing
    return (
        candidate.gpu,
        candidate.tensor_parallel,
        candidate.pipeline_parallel,
        candidate.data_parallel,
        candidate.expert_parallel,
        candidate.weights,
        candidate.kv,
        sharing.replicas if sharing is not None and sharing.mode == "mig" else 1,
    )


def _part_of(card: Gpu, parts: int) -> Gpu:
    """An equal part of a card, as MIG cuts it: of its compute, its memory and its bandwidth."""

    def cut(rate: float | None) -> float | None:
        return None if rate is None else rate / parts

    return msgspec.structs.replace(
        card,
        name=f"1/{parts} {card.name}",
        half_tflops=card.half_tflops / parts,
        fp8_tflops=cut(card.fp8_tflops),
        fp4_tflops=cut(card.fp4_tflops),
        int8_tops=cut(card.int8_tops),
        memory_gb=card.memory_gb / parts,
        memory_mib=None if card.memory_mib is None else card.memory_mib // parts,
        bandwidth_gb_per_s=card.bandwidth_gb_per_s / parts,
        nvlink_gb_per_s=None,
    )


def _gpu_token_bytes(deployment: Deployment) -> float:
    """Of the KV cache of one token: what one GPU holds of it."""
    share = deployment.kv_rank_share / deployment.pipeline_parallel
    return deployment.kv_bytes_per_token * share


def _apart(candidate: Candidate, deployment: Deployment) -> DisaggregationConfig | None:
    """Each GPU sends its part over its own link: NVLink within a machine or rack, a port of the
    network beyond."""
    apart = candidate.disaggregation
    if apart is None:
        return None
    card = deployment.gpu
    if candidate.engines * candidate.engine_gpus > card.domain_gpus:
        gb_per_s = _NETWORK_GB_PER_S
    elif deployment.link == "nvlink" and card.nvlink_gb_per_s is not None:
        gb_per_s = card.nvlink_gb_per_s / 2
    else:
        gb_per_s = card.pcie_gb_per_s / 2
    return DisaggregationConfig(
        prefill_engines=apart.prefill_engines,
        decode_engines=apart.decode_engines,
        transfer_token_s=_gpu_token_bytes(deployment) / (gb_per_s * 1e9),
    )


def _tiers(candidate: Candidate, deployment: Deployment) -> tuple[KvTierConfig, ...]:
    block_bytes = BLOCK_TOKENS * _gpu_token_bytes(deployment)
    return tuple(
        KvTierConfig(
            blocks=max(1, int(tier.gb_per_gpu * 1e9 / block_bytes) * candidate.data_parallel),
            block_load_s=block_bytes / ((tier.gb_per_s or deployment.gpu.pcie_gb_per_s) * 1e9),
        )
        for tier in candidate.kv_tiers
    )
