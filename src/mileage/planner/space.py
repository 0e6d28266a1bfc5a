"""Space: the set-ups that a plan chooses among, in a fixed order; what cannot be is counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.costmodel.gpu import Gpu
from mileage.costmodel.precision import KvPrecision, Precision
from mileage.planner.built import Builder
from mileage.planner.candidate import (
    Candidate,
    Disaggregation,
    GraphSizes,
    HostTier,
    Sharing,
)
from mileage.sim.engine_defaults import default_limits
from mileage.sim.engine_features import AdaptersConfig, SpeculationConfig

__all__ = ["Explored", "Impossible", "Space"]

Reason: TypeAlias = Literal["layout", "memory", "parts"]
"""layout: the model cannot be split so; memory: it does not fit; parts: features, or limits, that
do not go together."""
_TENSOR_MAX: Final = 8
_RUNNING: Final = (64, 256)
_STEP_TOKENS: Final = (512, 2048)
_COUNTS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)


class Impossible(msgspec.Struct, frozen=True, kw_only=True):
    """What of a space cannot be, and why."""

    reason: Reason
    settings: int
    """How many; each with any number of replicas."""
    example: str
    """The first of them, and what is wrong with it."""


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to choose among."""

    candidates: tuple[Candidate, ...]
    impossible: tuple[Impossible, ...]


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values of each dimension; every one is combined with every other. None: the usual ones.

    Raises ConfigError for a dimension without values, and for a card that is not known.
    """

    gpus: tuple[str, ...]
    gpus_max: int = 16
    """Of the whole fleet."""
    tensor_parallel: tuple[int, ...] | None = None
    """None: powers of two, up to the GPUs of a machine and to 8."""
    pipeline_parallel: tuple[int, ...] = (1,)
    data_parallel: tuple[int, ...] = (1,)
    expert_parallel: tuple[int, ...] = (1,)
    replicas: tuple[int, ...] | None = None
    """None: all small numbers and some larger ones, up to `gpus_max`."""
    weights: tuple[Precision, ...] | None = None
    """None: half precision, what the card multiplies in natively of 8 bits, and INT4."""
    kv: tuple[KvPrecision, ...] | None = None
    """None: half precision, and FP8 where the card has it."""
    running_max: tuple[int, ...] | None = None
    """None: 64 and 256."""
    step_tokens_max: tuple[int, ...] | None = None
    """None: 512, 2048, and what the engine takes on that card."""
    chunked_prefill: tuple[bool, ...] = (True,)
    prefix_cache: tuple[bool, ...] = (True,)
    graph_sizes: tuple[GraphSizes, ...] = ("default",)
    speculation: tuple[SpeculationConfig | None, ...] = (None,)
    disaggregation: tuple[Disaggregation | None, ...] = (None,)
    kv_tiers: tuple[tuple[HostTier, ...], ...] = ((),)
    sharing: tuple[Sharing | None, ...] = (None,)
    policy: tuple[str, ...] = ("off",)
    tuning: tuple[tuple[str, AdaptersConfig | None], ...] = (("none", None),)
    fine_tunes: int = 1
    """Models that are served where each adapter is a full fine-tune."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if getattr(self, field) == ():
                raise ConfigError(field, "no value", "at least one")
        for name in self.gpus:
            known_gpu(name)

    def _settings(self, card: Gpu) -> Iterator[dict[str, Any]]:
        """All but the number of replicas."""
        _, tokens = default_limits(card)
        values: dict[str, tuple[Any, ...]] = {
            "weights": self.weights or _weights(card),
            "tensor_parallel": self.tensor_parallel or _powers(min(card.domain_gpus, _TENSOR_MAX)),
            "pipeline_parallel": self.pipeline_parallel,
            "data_parallel": self.data_parallel,
            "expert_parallel": self.expert_parallel,
            "kv": self.kv or (("bf16", "fp8") if card.fp8_tflops is not None else ("bf16",)),
            "running_max": self.running_max or _RUNNING,
            "step_tokens_max": self.step_tokens_max or tuple(sorted({*_STEP_TOKENS, tokens})),
            "chunked_prefill": self.chunked_prefill,
            "prefix_cache": self.prefix_cache,
            "graph_sizes": self.graph_sizes,
            "speculation": self.speculation,
            "disaggregation": self.disaggregation,
            "kv_tiers": self.kv_tiers,
            "sharing": self.sharing,
            "policy": self.policy,
            "tuning": self.tuning,
        }
        for chosen in itertools.product(*values.values()):
            found = dict(zip(values, chosen, strict=True))
            tuning, adapters = found.pop("tuning")
            yield {**found, "tuning": tuning, "adapters": adapters}

    def explore(self, builder: Builder) -> Explored:
        """Every candidate that can be built, and how many cannot, by what is wrong with them."""
        possible: list[Candidate] = []
        wrong: dict[Reason, list[str]] = {}
        for name in self.gpus:
            card = known_gpu(name)
            for settings in self._settings(card):
                counts = self._counts(settings)
                try:
                    candidates = [
                        Candidate(gpu=card.name, replicas=count, **settings) for count in counts
                    ]
                except ConfigError as error:
                    wrong.setdefault("parts", []).append(f"{card.name}: {error}")
                    continue
                if not candidates:
                    continue
                found = _why_not(builder, candidates[0])
                if found is None:
                    possible += candidates
                else:
                    reason, text = found
                    wrong.setdefault(reason, []).append(f"{candidates[0].label}: {text}")
        return Explored(
            candidates=tuple(possible),
            impossible=tuple(
                Impossible(reason=reason, settings=len(texts), example=texts[0])
                for reason, texts in wrong.items()
            ),
        )

    def _counts(self, settings: Mapping[str, Any]) -> list[int]:
        """Replicas that make no more than `gpus_max` GPUs."""
        sharing: Sharing | None = settings["sharing"]
        share = 1 if sharing is None else sharing.replicas
        apart: Disaggregation | None = settings["disaggregation"]
        engines = 1 if apart is None else apart.prefill_engines + apart.decode_engines
        each = engines * settings["tensor_parallel"] * settings["pipeline_parallel"]
        each *= settings["data_parallel"] * (self.fine_tunes if settings["tuning"] == "full" else 1)
        most = self.gpus_max * share // each
        counts = self.replicas or tuple(count * share for count in _COUNTS)
        return [count for count in counts if count <= most]


def _why_not(builder: Builder, candidate: Candidate) -> tuple[Reason, str] | None:
    try:
        builder.deployment(candidate)
    except ConfigError as error:
        return "layout", str(error)
    try:
        builder.check(candidate)
    except ConfigError as error:
        return "memory" if error.key == "tensor_parallel" else "parts", str(error)
    return None


def _powers(most: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(max(1, most).bit_length()) if 2**power <= most)


def _weights(card: Gpu) -> tuple[Precision, ...]:
    found: list[Precision] = ["bf16"]
    if card.fp8_tflops is not None:
        found.append("fp8")
    elif card.int8_tops is not None:
        found.append("int8")
    return (*found, "int4")
