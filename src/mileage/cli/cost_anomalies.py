"""`mileage cost anomalies`: hours in which somebody used far more, or less, than usual."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from mileage.cli.cost_arguments import AnomaliesArguments
from mileage.cli.cost_format import gpu_hours, money, plural
from mileage.cli.cost_session import EMPTY, CostSession, session_of
from mileage.cli.cost_window import Window
from mileage.cli.simulate_arguments import taking
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.ledger.account_name import LASTING_ACCOUNTS
from mileage.ledger.anomaly import Anomaly, find_anomalies
from mileage.ledger.hour_series import TOTAL, hour_series

__all__ = ["register_anomalies"]

_DAY_S: Final = 86_400
_ROWS: Final = 40


def register_anomalies(group: typer.Typer) -> None:
    """Register `anomalies` with the group."""
    group.command(name="anomalies")(anomalies)


@taking(AnomaliesArguments)
def anomalies(context: typer.Context, arguments: AnomaliesArguments) -> None:
    """Find hours in which an account used far more, or less, than at that hour of other weeks.

    Exits with 1 where there are some, with 3 where there is too little history to tell.

    Example: mileage cost anomalies --by tenant --since 7d
    """
    session = session_of(arguments)
    names = session.names(arguments.by, LASTING_ACCOUNTS)
    config = session.billing.anomalies
    window = session.window(arguments.since, arguments.until)
    earliest = max(0, window.since_utc_s - config.history_days * _DAY_S)
    rows = session.rows(
        Window(earliest, window.until_utc_s, session.zone, session.zone_name), names.texts
    )
    settled = min(rows.settled_until_utc_s or window.until_utc_s, window.until_utc_s)
    series = hour_series(rows.usage, rows.capacity, names, session.book)
    found: list[Anomaly] = []
    hours = unknown = 0
    for each in series.values():
        if each.name == TOTAL:
            continue
        result = find_anomalies(
            each.until(settled),  # the hour of now is not over
            config,
            session.zone,
            since_utc_s=window.first_hour_utc_s,
        )
        found += result.found
        hours, unknown = hours + result.hours, unknown + result.unknown
    found.sort(key=lambda a: -abs(a.actual_ns - a.expected_ns))
    nothing = not hours or unknown == hours
    document = {
        "window": window.document(),
        "by": names.group,
        "anomalies": [_document(session, window, anomaly) for anomaly in found],
        "account_hours": hours,
        "account_hours_without_history": unknown,
        "warnings": [EMPTY] if not rows else [],
    }
    if arguments.as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        _show(session, document)
    if found or nothing:
        raise typer.Exit(1 if found else 3)


def _document(session: CostSession, window: Window, anomaly: Anomaly) -> dict[str, Any]:
    extra = anomaly.extra_nano_usd
    return {
        "account": anomaly.account,
        "hour": window.text(anomaly.hour_at_utc_s),
        "hour_at_utc_s": anomaly.hour_at_utc_s,
        "expected_gpu_ns": round(anomaly.expected_ns),
        "actual_gpu_ns": anomaly.actual_ns,
        "extra_usd": None if extra is None else extra / 1e9,
        "deviations": anomaly.deviations,
        "against": anomaly.against,
        "samples": anomaly.samples,
    }


def _show(session: CostSession, document: dict[str, Any]) -> None:
    console = wide_console()
    found = document["anomalies"]
    if found:
        code, rate = session.billing.currency, session.billing.currency_per_usd or 1.0
        table = Table(box=None, pad_edge=False)
        table.add_column("hour", no_wrap=True)
        table.add_column(document["by"], overflow="ellipsis", no_wrap=True, max_width=24)
        for name in ("GPU-h expected", "actual", "times", f"{code} more", "sigmas"):
            table.add_column(name, justify="right", no_wrap=True)
        for each in found[:_ROWS]:
            expected, actual = each["expected_gpu_ns"], each["actual_gpu_ns"]
            table.add_row(
                each["hour"],
                safe_text(each["account"]),
                gpu_hours(expected),
                gpu_hours(actual),
                f"x{actual / expected:.3g}" if expected else "new",
                money(each["extra_usd"], rate),
                f"{each['deviations']:+.0f}",
            )
        console.print(table)
        if found[_ROWS:]:
            console.print(Text(f"... {len(found) - _ROWS} more (--json)", style="dim"))
    looked = document["account_hours"] - document["account_hours_without_history"]
    without = document["account_hours_without_history"]
    line = f"{len(found)} of {plural(looked, 'hour')} of accounts stand out"
    if without:
        line += f"; {plural(without, 'hour')} had too little history to be compared with"
    console.print(Text(line))
    for warning in document["warnings"]:
        console.print(Text(f"! {warning}", style="yellow"))
