"""Layout: how a model is laid out on the GPUs of one replica."""

from __future__ import annotations

from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_up_to
from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.precision import KV_BYTES, KvPrecision, Precision

__all__ = ["Engine", "Interconnect", "Layout"]

Engine = Literal["vllm", "sglang", "trtllm"]
Interconnect = Literal["nvlink", "pcie"]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, as an engine would be started.

    It has `tensor_parallel` x `data_parallel` x `pipeline_parallel` GPUs.

    `data_parallel` is that of attention within the replica (DP attention): each rank keeps the KV
    cache of its own requests, and experts are shared by all ranks. `expert_parallel` ranks hold
    different experts; where it is smaller than the ranks, experts are cut among the others.

    Raises ConfigError for what cannot be split so.
    """

    model: Architecture
    gpu: Gpu
    tensor_parallel: int = 1
    data_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    weights: Precision = "bf16"
    kv: KvPrecision = "bf16"
    kv_bits: float | None = None
    """Of one number of the KV cache, its part of the scales with it, where layers have formats of
    their own (`mileage quant`): the mean. None: those of `kv`."""
    engine: Engine = "vllm"
    gpu_memory_utilization_ratio: float = 0.9
    interconnect: Interconnect | None = None
    """Between the GPUs of one machine; None: NVLink where the GPU has it."""
    efficiency: Efficiency | None = None
    """None: the fitted one."""

    def __post_init__(self) -> None:
        for key in ("tensor_parallel", "data_parallel", "pipeline_parallel", "expert_parallel"):
            require_at_least(key, getattr(self, key), 1)
        require_up_to("gpu_memory_utilization_ratio", self.gpu_memory_utilization_ratio, 1.0)
        if self.kv_bits is not None:
            require_at_least("kv_bits", self.kv_bits, 1.0)
            require_up_to("kv_bits", self.kv_bits, 32.0)
        model, tensor = self.model, self.tensor_parallel
        if model.heads % tensor:
            raise ConfigError("tensor_parallel", tensor, f"a divisor of {model.heads} heads")
        if self.pipeline_parallel > model.layers:
            expected = f"up to {model.layers} layers"
            raise ConfigError("pipeline_parallel", self.pipeline_parallel, expected)
        if self.expert_parallel > 1 and not model.experts:
            raise ConfigError(
                "expert_parallel", self.expert_parallel, "1: the model has no experts"
            )
        if self.ranks % self.expert_parallel:
            raise ConfigError(
                "expert_parallel", self.expert_parallel, f"a divisor of {self.ranks} ranks"
            )
        if self.interconnect == "nvlink" and self.gpu.nvlink_gb_per_s is None:
            raise ConfigError("interconnect", "nvlink", f"pcie: {self.gpu.name} has no NVLink")

    @property
    def ranks(self) -> int:
        """GPUs of one pipeline stage: those that experts are spread over."""
        return self.tensor_parallel * self.data_parallel

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.ranks * self.pipeline_parallel

    @property
    def link(self) -> Interconnect:
        """What joins the GPUs of one machine."""
        if self.interconnect is not None:
            return self.interconnect
        return "nvlink" if self.gpu.nvlink_gb_per_s is not None else "pcie"

    @property
    def attention_weights(self) -> Precision:
        """Of the attention's projections: checkpoints of mixtures in FP4 keep those in half."""
        return "bf16" if self.weights == "fp4" and self.model.experts else self.weights

    @property
    def kv_number_bytes(self) -> float:
        """Bytes of one number of the KV cache."""
        return KV_BYTES[self.kv] if self.kv_bits is None else self.kv_bits / 8.0

    @property
    def kv_bytes_per_token(self) -> float:
        """Of one token of context: what a copy of its keys and values has, in all layers."""
        return self.model.layers * self.model.kv_elements * self.kv_number_bytes

    @property
    def kv_rank_share(self) -> float:
        """Of a layer's keys and values: what one GPU of a data-parallel rank keeps.

        Heads that are fewer than the GPUs are held several times; the latent vector of MLA, which
        all heads share, on every one.
        """
        if self.model.mla:
            return 1.0
        return 1.0 / min(self.tensor_parallel, self.model.kv_heads)
