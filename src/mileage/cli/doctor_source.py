"""Where the facts of a diagnosis come from: a look at what runs, files, what others recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.doctor_admin import AdminPlane, admin_plane
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.doctor_cluster import cluster_parts
from mileage.cli.doctor_dump import read_dump
from mileage.cli.doctor_fact import stated_facts
from mileage.cli.doctor_facts_file import read_facts
from mileage.cli.doctor_log_file import log_lines
from mileage.cli.doctor_model_repository import repository_parts
from mileage.cli.doctor_prometheus import prometheus_parts
from mileage.cli.doctor_watch import WatchPlan, watch
from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.engine_record import EngineRecord
from mileage.doctor.collect.merge_facts import FactConflict, SourcedFacts, merge_facts
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["Gathered", "gather"]

_WINDOW_MIN_S: Final = 2.0
_WINDOW_MAX_S: Final = 3600.0


class Gathered(msgspec.Struct, frozen=True):
    """A facts document, for each source that told nothing why, what engines answered, and where two
    sources contradict each other."""

    document: dict[str, Any]
    notes: dict[str, str]
    url: str | None = None
    admin_url: str | None = None
    records: tuple[EngineRecord, ...] = ()
    conflicts: tuple[FactConflict, ...] = ()


def gather(arguments: DoctorArguments) -> Gathered:
    """Facts from where the options say. Of a fact that several tell, --fact counts, then what was
    seen, --facts, --dump, --prometheus; and below them what was configured.

    Raises:
        ConfigError: an option is wrong, or there is nothing to look at.
    """
    stated = stated_facts(arguments.fact or [])
    files, configured, notes = _told(arguments)
    lines = [line for path in arguments.log or () for line in log_lines(path)]
    found = _watched(arguments) if arguments.urls or arguments.dcgm else Gathered({}, {})
    recorded, unasked = prometheus_parts(arguments)  # of the same time as what was watched
    others = [*files, *recorded, *configured]
    if not (stated or others or arguments.log or arguments.urls or arguments.dcgm):
        raise ConfigError("URL", None, "an address, or --facts, --dump, --log or --manifest")
    # What nobody shall overrule is laid over in the end, so that even a bound of it stays.
    merged = merge_facts([_measured("what was seen", found.document), *others])
    document = merged.document
    if len(others) == 1 and not found.document:
        document = others[0].document  # as it is: a merge would drop lines that come again
    if lines:
        document = {**document, "logs": [*document.get("logs", []), *lines]}
    return replace(
        found,
        document=_over(stated, document),
        notes={**found.notes, **unasked, **notes},
        conflicts=(*found.conflicts, *merged.conflicts),
    )


def _told(
    arguments: DoctorArguments,
) -> tuple[list[SourcedFacts], list[SourcedFacts], dict[str, str]]:
    """Facts of files, and those of what was configured, with what a cluster did not tell."""
    files: list[SourcedFacts] = []
    if arguments.facts is not None:
        files.append(_measured(str(arguments.facts), read_facts(arguments.facts)))
    if arguments.dump is not None:
        files.append(_measured(str(arguments.dump), read_dump(arguments.dump)))
    cluster, notes = cluster_parts(arguments)
    return files, [*repository_parts(arguments.model_repository), *cluster], notes


def _measured(source: str, document: dict[str, Any]) -> SourcedFacts:
    return SourcedFacts(source=source, standing="measured", document=document)


def _watched(arguments: DoctorArguments) -> Gathered:
    window_s = seconds_of("--for", arguments.duration)
    if not _WINDOW_MIN_S <= window_s <= _WINDOW_MAX_S:
        raise ConfigError("--for", arguments.duration, "a time of 2 s to an hour")
    urls = tuple(url_of(url) for url in arguments.urls or ())
    keys = _keys(arguments, urls)
    admin = admin_plane(arguments, urls[0], keys.get(urls[0])) if urls else AdminPlane()
    plan = WatchPlan(
        urls=urls,
        window_s=window_s,
        dcgm_urls=tuple(_page_of(url) for url in arguments.dcgm or ()),
        admin_url=admin.url,
        admin_token=admin.token,
        authorization=keys,
    )
    notes = {} if admin.missing is None else {"gateway": admin.missing}
    try:
        with Console(stderr=True).status(f"watching for {window_s:g} s"):
            watched = watch(plan)
    except EngineError as error:
        # Nothing was seen, which is a diagnosis too: not enough evidence.
        return Gathered({}, {error.engine: error.message, **notes})
    return Gathered(
        watched.document,
        watched.notes | notes,
        urls[0] if urls else None,
        admin.url,
        watched.records,
        watched.conflicts,
    )


def _keys(arguments: DoctorArguments, urls: Sequence[str]) -> dict[str, str]:
    """Value of the Authorization header by URL; of "" for engines that a gateway tells of."""
    if arguments.api_key_env is None:
        return {}
    if not urls:
        raise ConfigError("--api-key-env", arguments.api_key_env, "a URL beside it")
    found = {url: bearer_of(arguments.api_key_env, None, url) for url in ("", *urls)}
    return {url: key for url, key in found.items() if key is not None}


def _page_of(url: str) -> str:
    """The exporter's page, also where its address alone is given."""
    whole = url_of(url, "--dcgm")
    return whole if urlsplit(whole).path else f"{whole}/metrics"


def _over(stated: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The document with what is stated on top."""
    merged = dict(document)
    for section, values in stated.items():
        merged[section] = {**document.get(section, {}), **values}
    return merged
