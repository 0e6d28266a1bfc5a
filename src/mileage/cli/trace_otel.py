"""`mileage trace otel`: requests of the ledger as OpenTelemetry traces and metrics."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from mileage.cli.bench_options import AsJson
from mileage.cli.config import load_config
from mileage.cli.ledger_options import ConfigFile, LedgerDirectory
from mileage.cli.ledger_place import ledger_place
from mileage.cli.ledger_requests import LedgerRequests
from mileage.cli.since import since_utc_ns
from mileage.core.errors import ConfigError, EngineError
from mileage.core.timeline import RequestTimeline
from mileage.dashboard.otel_sender import OtelSender
from mileage.storage.request_follower import RequestFollower

__all__ = ["register_otel"]

_PERIOD_S = 5.0
_FLUSH_S = 30.0


def register_otel(group: typer.Typer) -> None:
    """Register `otel` with the group."""
    group.command(name="otel")(otel)


def otel(
    endpoint: Annotated[
        str, typer.Option(help="OTLP/HTTP collector: its base, without /v1/traces.")
    ] = "http://127.0.0.1:4318",
    since: Annotated[
        str, typer.Option(help="Requests that arrived since: 90s, 15m, 2h, 7d, or a date and time.")
    ] = "1h",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with those that are stored, until Ctrl-C.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the collector; again for each."),
    ] = None,
    no_metrics: Annotated[
        bool, typer.Option("--no-metrics", help="Send no gen_ai histograms, spans alone.")
    ] = False,
    config: ConfigFile = None,
    ledger: LedgerDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Send served requests to an OpenTelemetry collector, as traces and GenAI metrics.

    Reads the ledger, beside the gateway and never in the way of a request. A request that came with
    a `traceparent` header is in its client's trace; the engine is sent the same header. No prompt
    and no answer is in the ledger, so none is sent. A span that is sent twice has the same id.

    Example: mileage trace otel --endpoint http://collector:4318 --follow
    """
    headers = _headers(header or [])
    start_ns = since_utc_ns(since, time.time_ns())
    source = LedgerRequests(ledger_place(load_config(config, {}).ledger, ledger))
    sent = _Sent()
    with OtelSender(endpoint, headers=headers, metrics=not no_metrics) as sender:
        if follow:
            _follow(RequestFollower(source, start_ns), sender, sent)
        else:
            _count(sender, source.arrived(start_ns, None), sent)
            sender.flush()
    if as_json:
        typer.echo(msgspec.json.encode({"requests": sent.requests, "spans": sender.spans_sent}))
    else:
        typer.echo(f"sent {sent.requests} requests as {sender.spans_sent} spans")


class _Sent:
    """How many requests so far."""

    requests = 0


def _count(sender: OtelSender, timelines: Iterator[RequestTimeline], sent: _Sent) -> None:
    def counted() -> Iterator[RequestTimeline]:
        for timeline in timelines:
            sent.requests += 1
            yield timeline

    sender.send(counted())


def _follow(follower: RequestFollower, sender: OtelSender, sent: _Sent) -> None:
    """Until SIGINT or SIGTERM. What a collector does not take is told and left out: the gateway's
    records stay, and `--since` sends them again."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    flushed_s = time.monotonic()
    while True:
        ending = stop.is_set()
        try:
            _count(sender, follower.look(time.time_ns()), sent)
            if ending or time.monotonic() - flushed_s >= _FLUSH_S:
                flushed_s = time.monotonic()
                sender.flush()
        except EngineError as error:
            typer.echo(f"mileage: {error}", err=True)
        if ending:
            return
        stop.wait(_PERIOD_S)


def _headers(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value):
            raise ConfigError("--header", name, "NAME=VALUE")
        found[name.strip()] = value
    return found
