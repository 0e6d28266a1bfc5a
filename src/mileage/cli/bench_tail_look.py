"""TailLook: what is looked at beside one run, and where its tail comes from by that."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.bench_measure import Beside, measure
from mileage.cli.bench_prepare import Prepared
from mileage.cli.bench_result import BenchRun
from mileage.cli.bench_tail_records import read_timelines
from mileage.cli.bench_tail_watch import Source, TailWatch, WatchOptions
from mileage.cli.bench_target import url_of
from mileage.cli.bench_watched_arguments import WatchedArguments
from mileage.cli.config import Config, ledger_directory, state_directory
from mileage.core.errors import ConfigError, LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.loadgen.run_options import RunOptions
from mileage.measure.tail import attribute_tail
from mileage.measure.tail_report import TailOptions, TailReport

__all__ = ["TailFound", "TailLook"]

_ADMIN_URL: Final = "http://127.0.0.1:8081"


class TailFound(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of a run's tail."""

    report: TailReport | None
    """None: no request ended well."""
    sources: list[Source]
    """What was looked at, and what could not be seen."""


class TailLook:
    """Looks beside one run. Raises ConfigError for options that cannot be."""

    def __init__(self, arguments: WatchedArguments, url: str, config: Config) -> None:
        self._arguments, self._url, self._config = arguments, url, config
        self._admin_token = _admin_token(arguments)
        if arguments.admin_url is not None:
            url_of(arguments.admin_url, "--admin-url")
        self._prepared: Prepared | None = None
        self._watch: TailWatch | None = None
        self._began_utc_s = 0.0

    async def measured(self, prepared: Prepared, options: RunOptions, beside: Beside) -> BenchRun:
        """The run, with all that can be looked at beside it."""
        watch = TailWatch(_watch_options(self._arguments, self._url, prepared, self._admin_token))
        self._prepared, self._watch, self._began_utc_s = prepared, watch, time.time()
        await watch.start()
        try:
            return await measure(prepared, options, beside)
        finally:
            await watch.stop()

    def found(self, run: BenchRun, options: TailOptions) -> TailFound:
        """Where the tail of the run comes from that was `measured`; waits up to 3 s for the last
        of the gateway's records."""
        assert self._prepared is not None
        assert self._watch is not None
        timelines, source = _timelines(
            self._arguments, self._config, self._prepared, run, self._began_utc_s
        )
        sources = [*self._watch.sources, *([] if source is None else [source])]
        report = None
        if any(r.phase == "measured" and r.outcome == "ok" for r in run.load.records):
            pauses = self._watch.pauses(run.load.zero_monotonic_s)
            report = attribute_tail(run.load.records, options, timelines=timelines, pauses=pauses)
        return TailFound(report=report, sources=sources)


def _watch_options(
    arguments: WatchedArguments, url: str, prepared: Prepared, admin_token: str | None
) -> WatchOptions:
    admin_url = arguments.admin_url
    if admin_url is None and prepared.kind == "mileage":
        admin_url = _ADMIN_URL
    return WatchOptions(
        url=url,
        engine_urls=tuple(arguments.engine_url or ()),
        admin_url=None if admin_url is None else url_of(admin_url, "--admin-url"),
        admin_token=admin_token,
        host=not arguments.no_host,
        ebpf=arguments.ebpf,
    )


def _admin_token(arguments: WatchedArguments) -> str | None:
    """As given, else that of this machine's gateway, if there is one. Raises ConfigError."""
    if arguments.admin_token_env is not None:
        token = os.environ.get(arguments.admin_token_env, "").strip()
        if not token:
            expected = "the name of an environment variable that is set"
            raise ConfigError("--admin-token-env", arguments.admin_token_env, expected)
        return token
    file = arguments.admin_token_file
    try:
        path = file or state_directory() / "admin-token"
        return path.read_text("utf-8").partition("\n")[0].strip() or None
    except (OSError, UnicodeDecodeError) as error:
        if file is None:
            return None
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError("--admin-token-file", str(file), f"a file ({reason})") from None


def _timelines(
    arguments: WatchedArguments, config: Config, prepared: Prepared, run: BenchRun, since_s: float
) -> tuple[dict[str, RequestTimeline], Source | None]:
    """The gateway's records, and what to say of them; nothing where there is no gateway."""
    directory: Path | None = arguments.ledger
    if directory is None and prepared.kind == "mileage":
        directory = ledger_directory(config.ledger)
    if directory is None:
        return {}, None
    ids = {r.request_id for r in run.load.records if r.request_id is not None}
    try:
        found = read_timelines(directory, ids, since_utc_s=since_s) if ids else {}
    except LedgerError as error:
        return {}, Source(name="gateway's records", seen=False, detail=str(error))
    detail = f"{len(found)} of {len(ids)} requests in {directory}"
    return found, Source(name="gateway's records", seen=bool(found), detail=detail)
