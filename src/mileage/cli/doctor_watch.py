"""Watching what runs: engine pages, the gateway's admin plane and the host, for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from mileage.core.errors import EngineError
from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord
from mileage.doctor.collect.facts_document import FactsDocument
from mileage.doctor.collect.gpu_facts import gpu_facts
from mileage.doctor.collect.host_facts import host_facts
from mileage.doctor.collect.merge_facts import FactConflict, SourcedFacts, merge_facts
from mileage.doctor.collect.merge_replicas import merge_replicas
from mileage.doctor.collect.process_facts import EngineProcess, process_facts
from mileage.scrape.doctor_engine import watch_engine
from mileage.scrape.doctor_gateway import GatewayWatch
from mileage.scrape.doctor_gpu import watch_gpus
from mileage.scrape.doctor_host import HostWatch
from mileage.scrape.doctor_process import engine_process
from mileage.scrape.server_use_process import is_local
from mileage.wire.fetch import fetch

__all__ = ["WatchPlan", "Watched", "watch"]


class WatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch, and for how long."""

    urls: tuple[str, ...]
    """Of engines; or the first one of a gateway, where there is an `admin_url`. None at all where
    GPUs alone are looked at."""
    window_s: float
    dcgm_urls: tuple[str, ...] = ()
    """Pages of exporters."""
    admin_url: str | None = None
    admin_token: str | None = None
    authorization: Mapping[str, str] = {}
    """Value of that header by URL of an engine; "" is for any other."""


class Watched(msgspec.Struct, frozen=True):
    """Facts, for each source that told nothing why, what engines answered, and where two sources
    contradict each other."""

    document: FactsDocument
    notes: dict[str, str]
    records: tuple[EngineRecord, ...] = ()
    conflicts: tuple[FactConflict, ...] = ()


def watch(plan: WatchPlan) -> Watched:
    """Watch for `plan.window_s` seconds. What cannot be seen is left out, and told in the notes.

    Raises:
        EngineError: nothing of all that is to be watched answers.
    """
    return asyncio.run(_watch(plan))


async def _watch(plan: WatchPlan) -> Watched:
    notes: dict[str, str] = {}
    gateway = None
    engine_urls: Sequence[str] = plan.urls
    if plan.admin_url is not None:
        gateway = GatewayWatch(plan.admin_url, plan.admin_token)
        await gateway.start()
        engine_urls = gateway.engine_urls
    host = HostWatch(plan.urls[0], engine_urls if gateway else ()) if plan.urls else None
    if host is not None:
        await asyncio.to_thread(host.start)
    gpus = asyncio.create_task(
        watch_gpus(
            plan.dcgm_urls,
            window_s=plan.window_s,
            fetch=fetch,
            local=any(_is_here(url) for url in engine_urls),
        )
    )
    watching = [_engine(url, plan, notes) for url in engine_urls]
    engines = [each for each in await asyncio.gather(*watching) if each is not None]
    seen = await gpus
    if not watching:
        await asyncio.sleep(0 if seen.samples else plan.window_s)
    notes |= seen.notes
    parts: list[SourcedFacts] = []
    if gateway is not None:
        document = await gateway.stop()
        parts.append(SourcedFacts(source="gateway", standing="measured", document=document))
        notes |= gateway.missing
    looks = await asyncio.to_thread(host.stop) if host is not None else []
    notes |= host.missing if host is not None else {}
    if gateway is None and not engines and not seen.samples:
        raise EngineError((*plan.urls, *plan.dcgm_urls)[0], "; ".join(notes.values()))
    # The gateway knows what all replicas do; an engine's own figures say more of the inside.
    of_engines, conflicts = _of_engines(engines)
    parts = [*of_engines, *parts]
    parts.append(SourcedFacts(source="host", standing="measured", document=host_facts(looks)))
    document = gpu_facts(seen.samples, seen.limits)
    parts.append(SourcedFacts(source="GPUs", standing="measured", document=document))
    records = tuple(each.record for each in engines)
    merged = merge_facts(parts)
    return Watched(merged.document, notes, records, (*conflicts, *merged.conflicts))


def _is_here(url: str) -> bool:
    try:
        return is_local(url)
    except ValueError:
        return False


class _Engine(msgspec.Struct, frozen=True):
    """What one engine answered, and its process where that is on this machine."""

    record: EngineRecord
    process: EngineProcess | None

    def facts(self) -> tuple[SourcedFacts, ...]:
        """Of all of it, by source."""
        told = engine_facts(self.record)
        if self.process is None:
            return told
        version = merge_facts(told).document.get("engine", {}).get("version")
        return (*told, *process_facts(self.process, place=self.record.url, version=version))


async def _engine(url: str, plan: WatchPlan, notes: dict[str, str]) -> _Engine | None:
    key = plan.authorization.get(url, plan.authorization.get(""))
    try:
        record = await watch_engine(url, window_s=plan.window_s, authorization=key)
    except EngineError as error:
        notes[url] = error.message
        return None
    try:
        return _Engine(record, await asyncio.to_thread(engine_process, url))
    except EngineError as error:
        notes[f"process of {url}"] = error.message
        return _Engine(record, None)


def _of_engines(
    engines: Sequence[_Engine],
) -> tuple[list[SourcedFacts], tuple[FactConflict, ...]]:
    """Of one engine its sources; of several one document, whose signals are lists, and where the
    sources of one of them contradict each other."""
    if len(engines) < 2:
        return [part for engine in engines for part in engine.facts()], ()
    merged = [merge_facts(engine.facts()) for engine in engines]
    document = merge_replicas([each.document for each in merged])
    conflicts = tuple(conflict for each in merged for conflict in each.conflicts)
    return [SourcedFacts(source="engines", standing="measured", document=document)], conflicts
