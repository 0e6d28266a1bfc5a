"""Facts of --prometheus: what it has recorded over the last --for."""

from __future__ import annotations

import asyncio
import time

from rich.console import Console

from mileage.cli.bench_target import url_of
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.core.errors import ConfigError
from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.facts_document import FactsDocument
from mileage.doctor.collect.gpu_facts import gpu_facts
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.doctor.collect.merge_replicas import merge_replicas
from mileage.doctor.collect.prometheus_answers import (
    PromSeries,
    dated_pages,
    engine_records,
    pod_of,
)
from mileage.doctor.collect.prometheus_cluster import cluster_series_facts
from mileage.measure.gpu_sample import GpuSample
from mileage.scrape.doctor_prometheus import Recorded, ask_prometheus, selector_of
from mileage.scrape.gpu_dcgm import dcgm_samples
from mileage.wire.fetch import fetch
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["prometheus_parts", "recorded_facts"]

_WINDOW_MAX_S = 31 * 86_400.0


def prometheus_parts(arguments: DoctorArguments) -> tuple[list[SourcedFacts], dict[str, str]]:
    """Facts by source, and what could not be asked. Raises ConfigError and EngineError."""
    if arguments.prometheus is None:
        if arguments.selector is not None:
            raise ConfigError("--selector", arguments.selector, "--prometheus beside it")
        return [], {}
    url = url_of(arguments.prometheus, "--prometheus")
    matchers = selector_of(arguments.selector or "")
    window_s = seconds_of("--for", arguments.duration)
    if not 0 < window_s <= _WINDOW_MAX_S:
        raise ConfigError("--for", arguments.duration, "a time of up to 31 days")
    with Console(stderr=True).status("asking Prometheus"):
        recorded = asyncio.run(
            ask_prometheus(
                url, matchers=matchers, window_s=window_s, now_utc_s=time.time(), fetch=fetch
            )
        )
    return recorded_facts(recorded), recorded.notes


def recorded_facts(recorded: Recorded) -> list[SourcedFacts]:
    """Facts of the series; several engines are replicas of one deployment."""
    found = [
        engine_facts(record) for record in engine_records(recorded.engines, place="Prometheus")
    ]
    engines = [merge_facts(parts).document for parts in found if parts]
    pods = {pod_of(each.labels) for each in recorded.engines} - {""}
    documents: list[tuple[str, FactsDocument]] = [
        ("engines", merge_replicas(engines) if len(engines) > 1 else (engines or [{}])[0]),
        ("GPUs", gpu_facts(_gpu_samples(recorded.gpus))),
        ("cluster", cluster_series_facts(recorded.cluster, pods)),
    ]
    return [
        SourcedFacts(source=f"{name} in Prometheus", standing="measured", document=document)
        for name, document in documents
        if document
    ]


def _gpu_samples(series: list[PromSeries]) -> list[GpuSample]:
    """Looks at each time at which the series have values."""
    samples: list[GpuSample] = []
    for at_s, page in dated_pages(series):
        try:
            samples += dcgm_samples(page.encode(), at_s=at_s)
        except ValueError:
            continue  # no figure that we know at that time
    return samples
