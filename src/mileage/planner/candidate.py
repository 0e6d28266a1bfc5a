"""Candidate: one set-up that a plan may choose: cards, layout, precision, and engine settings."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_positive, require_range
from mileage.core.errors import ConfigError
from mileage.costmodel.precision import KvPrecision, Precision
from mileage.sim.engine_features import AdaptersConfig, SpeculationConfig

__all__ = ["Candidate", "Disaggregation", "GraphSizes", "HostTier", "Sharing"]

GraphSizes: TypeAlias = Literal["default", "none"] | tuple[int, ...]
"""CUDA graphs: those that the engine captures by itself, none, or of these batch sizes."""

_PARALLEL: Final = (
    ("tensor_parallel", "TP"),
    ("pipeline_parallel", "PP"),
    ("data_parallel", "DP"),
    ("expert_parallel", "EP"),
)


class Disaggregation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Engines of a replica that only compute prompts, and engines that only decode."""

    prefill_engines: int = 1
    decode_engines: int = 1

    def __post_init__(self) -> None:
        require_range("disaggregation.prefill_engines", self.prefill_engines, 1, 1024)
        require_range("disaggregation.decode_engines", self.decode_engines, 1, 1024)


class HostTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory behind that of each GPU, for blocks of the KV cache."""

    gb_per_gpu: float
    gb_per_s: float | None = None
    """Of its link to a GPU, one way. None: that of the GPU's slot."""

    def __post_init__(self) -> None:
        require_positive("kv_tiers.gb_per_gpu", self.gb_per_gpu)
        if self.gb_per_s is not None:
            require_positive("kv_tiers.gb_per_s", self.gb_per_s)


class Sharing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replicas that share a GPU."""

    replicas: int
    mode: Literal["time", "mps", "mig"] = "time"
    """time: they take turns; mps: their kernels overlap; mig: each has a part of the card."""
    capacity_ratio: float = 1.0
    """mps: what all get done together, over what one alone does."""

    def __post_init__(self) -> None:
        require_range("sharing.replicas", self.replicas, 2, 7)
        require_range("sharing.capacity_ratio", self.capacity_ratio, 1.0, float(self.replicas))
        if self.mode != "mps" and self.capacity_ratio != 1.0:
            expected = f"1 with {self.mode}: only kernels that overlap get more done"
            raise ConfigError("sharing.capacity_ratio", self.capacity_ratio, expected)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal replicas on one kind of GPU. Raises ConfigError for figures that cannot be.

    `running_max` and `step_tokens_max` are those of each data-parallel rank, and tokens those of
    one batch of a pipeline: as the flags of engines are.
    """

    gpu: str
    """Name in the catalogue."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    """Of attention, within a replica."""
    expert_parallel: int = 1
    replicas: int = 1
    weights: Precision = "bf16"
    kv: KvPrecision = "bf16"
    running_max: int = 256
    step_tokens_max: int = 2048
    chunked_prefill: bool = True
    prefix_cache: bool = True
    graph_sizes: GraphSizes = "default"
    speculation: SpeculationConfig | None = None
    """By a draft model, or by the model's own heads (MTP)."""
    disaggregation: Disaggregation | None = None
    kv_tiers: tuple[HostTier, ...] = ()
    sharing: Sharing | None = None
    policy: str = "off"
    """The governor, as `mileage simulate --policy` spells it."""
    tuning: Literal["none", "lora", "full"] = "none"
    """What serves a trace's adapters: nothing asks for them; LoRA adapters of one base model; or a
    full fine-tune each, with `replicas` of its own."""
    adapters: AdaptersConfig | None = None
    """lora: what they cost an engine. None: nothing."""

    def __post_init__(self) -> None:
        for key, _ in _PARALLEL:
            require_at_least(key, getattr(self, key), 1)
        require_range("replicas", self.replicas, 1, 4096)
        require_at_least("running_max", self.running_max, 1)
        require_at_least("step_tokens_max", self.step_tokens_max, 1)
        if self.sharing is not None:
            self._check_sharing(self.sharing)
        if self.adapters is not None and self.tuning != "lora":
            raise ConfigError("adapters", self.tuning, "none without tuning=lora")

    def _check_sharing(self, sharing: Sharing) -> None:
        if self.engine_gpus > 1 or self.disaggregation is not None:
            expected = "none: a replica of several GPUs shares none of them"
            raise ConfigError("sharing", sharing.replicas, expected)
        if self.replicas % sharing.replicas:
            expected = f"a multiple of {sharing.replicas}: so many share a GPU"
            raise ConfigError("replicas", self.replicas, expected)

    @property
    def engine_gpus(self) -> int:
        """GPUs of one engine."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel

    @property
    def engines(self) -> int:
        """Engines of a replica, each with GPUs of its own."""
        apart = self.disaggregation
        return 1 if apart is None else apart.prefill_engines + apart.decode_engines

    def gpus(self, fine_tunes: int = 1) -> int:
        """GPUs of the whole fleet. `fine_tunes`: models that are served, where each has a fleet."""
        share = 1 if self.sharing is None else self.sharing.replicas
        fleets = fine_tunes if self.tuning == "full" else 1
        return fleets * self.replicas * self.engines * self.engine_gpus // share

    @property
    def label(self) -> str:
        """For people: what is not as it usually is."""
        parts = [f"{self.replicas} x {self.gpu}"]
        parts += [
            f"{short}{getattr(self, key)}" for key, short in _PARALLEL if getattr(self, key) > 1
        ]
        parts.append(self.weights if self.kv == "bf16" else f"{self.weights}, KV {self.kv}")
        parts.append(f"{self.running_max} seqs, {self.step_tokens_max} tokens")
        return ", ".join((*parts, *self._features()))

    def _features(self) -> list[str]:
        found = [] if self.chunked_prefill else ["whole prompts"]
        if not self.prefix_cache:
            found.append("no prefix cache")
        if self.graph_sizes == "none":
            found.append("no CUDA graphs")
        elif self.graph_sizes != "default":
            found.append(f"{len(self.graph_sizes)} CUDA graphs")
        if self.speculation is not None:
            found.append(f"{self.speculation.draft_tokens} drafted")
        if self.disaggregation is not None:
            apart = self.disaggregation
            found.append(f"{apart.prefill_engines} prefill + {apart.decode_engines} decode")
        found += [f"{tier.gb_per_gpu:g} GB behind each GPU" for tier in self.kv_tiers]
        if self.sharing is not None:
            found.append(f"{self.sharing.replicas} a GPU by {self.sharing.mode}")
        if self.tuning != "none":
            found.append("LoRA" if self.tuning == "lora" else "full fine-tunes")
        if self.policy != "off":
            found.append(f"policy {self.policy}")
        return found
