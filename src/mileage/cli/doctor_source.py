"""Where the facts of a diagnosis come from: a file, a dump, or a look at what runs."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from rich.console import Console

from mileage.cli.bench_target import url_of
from mileage.cli.doctor_admin import AdminPlane, admin_plane
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.doctor_cluster import cluster_parts
from mileage.cli.doctor_dump import read_dump
from mileage.cli.doctor_fact import stated_facts
from mileage.cli.doctor_facts_file import read_facts
from mileage.cli.doctor_log_file import log_lines
from mileage.cli.doctor_prometheus import prometheus_parts
from mileage.cli.doctor_watch import WatchPlan, watch
from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["Gathered", "gather"]

_WINDOW_MIN_S: Final = 2.0
_WINDOW_MAX_S: Final = 3600.0


class Gathered(msgspec.Struct, frozen=True):
    """A facts document, and for each source that told nothing why."""

    document: dict[str, Any]
    notes: dict[str, str]
    url: str | None = None
    admin_url: str | None = None


def gather(arguments: DoctorArguments) -> Gathered:
    """Facts from where the options say, with what --log, --manifest and --k8s have below them; what
    --fact states stands over all of it.

    Raises:
        ConfigError: an option is wrong, or there is nothing to look at.
    """
    parts, notes = cluster_parts(arguments)
    found = _seen(arguments, stated_facts(arguments.fact or []))
    recorded, unasked = prometheus_parts(arguments)
    parts, notes = [*recorded, *parts], notes | unasked
    document = found.document
    if arguments.log:
        lines = [line for path in arguments.log for line in log_lines(path)]
        document = {**document, "logs": [*document.get("logs", []), *lines]}
    if parts:
        seen = SourcedFacts(source="what was seen", standing="measured", document=document)
        document = merge_facts([seen, *parts]).document
    return replace(found, document=document, notes={**found.notes, **notes})


def _seen(arguments: DoctorArguments, stated: dict[str, Any]) -> Gathered:
    if arguments.facts is not None:
        return Gathered(_over(stated, read_facts(arguments.facts)), {})
    if arguments.dump is not None:
        return Gathered(_over(stated, read_dump(arguments.dump)), {})
    if arguments.urls or arguments.dcgm:
        return _watched(arguments, stated)
    others = (arguments.log, arguments.manifest, arguments.k8s, arguments.prometheus)
    if not stated and not any(others):
        raise ConfigError("URL", None, "an address, or --facts, --dump, --log or --manifest")
    return Gathered(stated, {})


def _watched(arguments: DoctorArguments, stated: dict[str, Any]) -> Gathered:
    window_s = seconds_of("--for", arguments.duration)
    if not _WINDOW_MIN_S <= window_s <= _WINDOW_MAX_S:
        raise ConfigError("--for", arguments.duration, "a time of 2 s to an hour")
    urls = tuple(url_of(url) for url in arguments.urls or ())
    admin = admin_plane(arguments, urls[0]) if urls else AdminPlane()
    plan = WatchPlan(
        urls=urls,
        window_s=window_s,
        dcgm_urls=tuple(_page_of(url) for url in arguments.dcgm or ()),
        admin_url=admin.url,
        admin_token=admin.token,
    )
    notes = {} if admin.missing is None else {"gateway": admin.missing}
    try:
        with Console(stderr=True).status(f"watching for {window_s:g} s"):
            watched = watch(plan)
    except EngineError as error:
        # Nothing was seen, which is a diagnosis too: not enough evidence.
        return Gathered(stated, {error.engine: error.message, **notes})
    document = _over(stated, watched.document)
    return Gathered(document, watched.notes | notes, urls[0] if urls else None, admin.url)


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
