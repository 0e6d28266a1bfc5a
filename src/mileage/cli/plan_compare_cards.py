"""Cards of `mileage plan compare`: what a file leaves out is filled from catalogue and model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from mileage.cli.config_document import Document
from mileage.cli.plan_compare_file import CompareFile, DeploymentEntry
from mileage.cli.simulate_arguments import CapacityArguments, RunArguments
from mileage.cli.simulate_features import features_of
from mileage.cli.simulate_fleet import Fleet, deployment_of, fleet_of
from mileage.control.config import CostsConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.costmodel.memory import MemoryUse, memory_use
from mileage.measure.scaling import ScalePoint, Scaling, scaling
from mileage.planner.comparison import DeploymentCard, Quality
from mileage.planner.quality_table import best_measure, known_quality

__all__ = ["FilledCard", "RateOf", "filled_cards"]

_GB = 1e9
_PLAIN = ("bf16", "fp8")
"""Precisions that are taken to answer as the published checkpoint does."""

RateOf: TypeAlias = Callable[[RunArguments, float], tuple[float | None, str]]
"""Requests per second that such a fleet serves within the targets, of the first requests of the
traffic, by their share of all; and how that is known."""


class FilledCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card, and by whose word its figures are."""

    card: DeploymentCard
    memory: MemoryUse | None = None
    """What each part takes of the fullest card; None: the cost model does not know it."""
    sources: dict[str, str] = {}
    """By the figure's key. What is in none is not known, or is in the file."""
    scale_out: Scaling | None = None
    """Requests per second by replicas; None: not asked for, or not to be said."""


def filled_cards(
    document: Document,
    told: CompareFile,
    costs: CostsConfig,
    rate_of: RateOf | None,
    replicas: Sequence[int] = (),
) -> list[FilledCard]:
    """The cards in their order. Without `rate_of` no rate is filled in, with it also those of so
    many replicas.

    Raises ConfigError with the file's key and line.
    """
    lacking = [each.model for each in told.deployments if each.quality is None]
    measure = told.measure or best_measure(lacking)
    found = []
    for place, entry in enumerate(told.deployments):
        try:
            found.append(_filled(entry, costs, measure, rate_of, replicas))
        except ConfigError as error:
            raise _placed(error, place, document) from None
    return found


def _filled(
    entry: DeploymentEntry,
    costs: CostsConfig,
    measure: str | None,
    rate_of: RateOf | None,
    replicas: Sequence[int],
) -> FilledCard:
    sources: dict[str, str] = {}
    quality, source = entry.quality, None
    if quality is None and measure is not None:
        quality, source = _quality(entry, measure)
    if source is not None:
        sources["quality"] = source
    rate = entry.requests_per_s
    if entry.gpu is None:
        return FilledCard(
            card=_card(entry, entry.form or entry.model, entry.cards or 1, quality),
            sources=sources,
        )
    arguments = _arguments(entry)
    (features,) = features_of(arguments)
    fleet = fleet_of(arguments, entry.gpu, entry.tp, features, costs, SloConfig())
    cards = entry.cards or math.ceil(fleet.gpus * fleet.replicas)
    deployment = deployment_of(arguments, entry.gpu, entry.tp, features)
    ranks, stages = entry.dp, entry.pp
    engine = fleet.engine
    memory = memory_use(
        deployment, engine.step_tokens_max // (ranks * stages), engine.running_max // ranks
    )
    bytes_, usd = entry.memory_gb, entry.usd_per_hour
    if bytes_ is None:
        sources["memory_gb"] = "the cost model: all that the engine may use"
    if usd is None and fleet.usd_per_gpu_hour is not None:
        usd = fleet.usd_per_gpu_hour * cards
        sources["usd_per_hour"] = fleet.price_source or ""
    if rate is None and rate_of is not None:
        rate, sources["requests_per_s"] = rate_of(arguments, 1.0)
    curve = None if rate_of is None else _scale_out(arguments, rate_of, replicas)
    card = _card(entry, entry.form or _form(fleet), cards, quality)
    return FilledCard(
        card=msgspec.structs.replace(
            card,
            memory_bytes=memory.total if bytes_ is None else bytes_ * _GB,
            usd_per_hour=usd,
            requests_per_s=rate,
        ),
        memory=memory,
        sources=sources,
        scale_out=curve,
    )


def _scale_out(
    arguments: CapacityArguments, rate_of: RateOf, replicas: Sequence[int]
) -> Scaling | None:
    """Each number of replicas is given its share of the requests, so that all of them are busy for
    about as long: the same requests in less time would be a queue that has no time to grow.

    Numbers for which the trace tells no rate are left out.
    """
    points = []
    for count in replicas:
        rate, _ = rate_of(replace(arguments, replicas=count), count / max(replicas))
        if rate:
            points.append(ScalePoint(replicas=count, throughput=rate))
    return scaling(points) if points else None


def _card(entry: DeploymentEntry, form: str, cards: int, quality: Quality | None) -> DeploymentCard:
    return DeploymentCard(
        name=entry.name,
        model=entry.model,
        form=form,
        cards=cards,
        memory_bytes=None if entry.memory_gb is None else entry.memory_gb * _GB,
        usd_per_hour=entry.usd_per_hour,
        requests_per_s=entry.requests_per_s,
        requests_per_task=entry.requests_per_task,
        quality=quality,
    )


def _quality(entry: DeploymentEntry, measure: str) -> tuple[Quality | None, str | None]:
    found = known_quality(entry.model, measure)
    if found is None:
        return None, None
    source = found.source
    if entry.gpu is None or (entry.precision or _PLAIN[0]) not in _PLAIN:
        source += "; of the checkpoint as published: quantised it may answer worse"
    return found, source


def _form(fleet: Fleet) -> str:
    replicas = "" if fleet.replicas == 1 else f"{fleet.replicas} x "
    return f"{fleet.layout['weights']}, {fleet.layout['engine_kind']}, {replicas}{fleet.name}"


def _arguments(entry: DeploymentEntry) -> CapacityArguments:
    return CapacityArguments(
        model=entry.model,
        gpu=entry.gpu,
        tp=str(entry.tp),
        dp=entry.dp,
        pp=entry.pp,
        ep=entry.ep,
        replicas=entry.replicas,
        precision=entry.precision,
        kv_dtype=entry.kv_dtype,
        engine=entry.engine,
        engine_max_seqs=entry.engine_max_seqs,
        engine_tokens=entry.engine_tokens,
        gpu_memory=entry.gpu_memory,
    )


def _placed(error: ConfigError, place: int, document: Document) -> ConfigError:
    """By the file's key, where an option of that name is one."""
    key = error.key.removeprefix("--").replace("-", "_")
    if key not in DeploymentEntry.__struct_fields__:
        return error
    return document.placed(ConfigError(f"deployments[{place}].{key}", error.value, error.expected))
