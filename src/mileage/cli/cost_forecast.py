"""`mileage cost forecast`: what the month will come to."""

from __future__ import annotations

from typing import Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from mileage.cli.cost_arguments import ForecastArguments
from mileage.cli.cost_format import gpu_hours, money
from mileage.cli.cost_session import EMPTY, CostSession, session_of
from mileage.cli.cost_window import Window
from mileage.cli.simulate_arguments import taking
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.ledger.account_name import LASTING_ACCOUNTS
from mileage.ledger.calendar import period_bounds, period_name
from mileage.ledger.forecast import Forecast, forecast
from mileage.ledger.hour_series import IDLE, TOTAL, HourSeries, hour_series

__all__ = ["register_forecast"]

_DAY_S = 86_400
_NS_PER_HOUR = 3.6e12


def register_forecast(group: typer.Typer) -> None:
    """Register `forecast` with the group."""
    group.command(name="forecast")(show_forecast)


@taking(ForecastArguments)
def show_forecast(context: typer.Context, arguments: ForecastArguments) -> None:
    """Tell what each account will have spent at the end of this month, with an interval.

    Hours to come are taken to be like the same hours of past weeks. Exits with 3 where too few days
    are on record.

    Example: mileage cost forecast --by team
    """
    session = session_of(arguments)
    names = session.names(arguments.by, LASTING_ACCOUNTS)
    now_utc_s = session.now_utc_s
    start, end = period_bounds(now_utc_s, "month", session.zone)
    since = min(start, now_utc_s - session.billing.forecast.history_days * _DAY_S)
    rows = session.rows(Window(since, now_utc_s, session.zone, session.zone_name), names.texts)
    series = hour_series(rows.usage, rows.capacity, names, session.book)
    priced = series[TOTAL].nano_usd is not None
    accounts = [
        _account(each, _forecast(session, each, priced, start, end), priced)
        for each in sorted(series.values(), key=_order)
    ]
    known = [each for each in accounts if each["expected"] is not None]
    document = {
        "month": period_name(now_utc_s, "month", session.zone),
        "timezone": session.zone_name,
        "unit": "usd" if priced else "gpu_hours",
        "level_ratio": session.billing.forecast.level_ratio,
        "accounts": [each for each in accounts if each["name"] != TOTAL],
        "total": next(each for each in accounts if each["name"] == TOTAL),
        "warnings": _warnings(session, bool(rows), priced, bool(known)),
    }
    if arguments.as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        _show(session, document)
    if not known:
        raise typer.Exit(3)


def _order(series: HourSeries) -> tuple[Any, ...]:
    return (series.name == TOTAL, series.name == IDLE, -sum(series.gpu_ns), series.name)


def _forecast(
    session: CostSession, series: HourSeries, priced: bool, start: int, end: int
) -> Forecast | None:
    values = series.nano_usd if priced else series.gpu_ns
    assert values is not None  # where the total has a price, all have
    scale = 1e9 if priced else _NS_PER_HOUR
    return forecast(
        series.hours_at_utc_s,
        [value / scale for value in values],
        session.zone,
        session.billing.forecast,
        start_utc_s=start,
        now_utc_s=session.now_utc_s,
        end_utc_s=end,
    )


def _account(series: HourSeries, found: Forecast | None, priced: bool) -> dict[str, Any]:
    figures = {} if found is None else msgspec.structs.asdict(found)
    names = ("actual", "expected", "low", "high", "by", "history_days")
    return {"name": series.name, **{name: figures.get(name) for name in names}}


def _warnings(session: CostSession, rows: bool, priced: bool, known: bool) -> list[str]:
    if not rows:
        return [EMPTY]
    found = []
    if not known:
        least = session.billing.forecast.history_days_min
        found.append(f"fewer than {least} days are on record: there is no forecast yet")
    if not priced:
        found.append("some GPUs have no price: the forecast is of GPU-hours")
    return found


def _show(session: CostSession, document: dict[str, Any]) -> None:
    billing = session.billing
    priced = document["unit"] == "usd"
    unit = billing.currency if priced else "GPU-hours"
    rate = (billing.currency_per_usd or 1.0) if priced else 1.0
    table = Table(box=None, pad_edge=False)
    table.add_column(document["month"], overflow="ellipsis", no_wrap=True, max_width=32)
    for name in (f"{unit} so far", "at the end", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    for account in (*document["accounts"], document["total"]):
        figures = [account[name] for name in ("actual", "expected", "low", "high")]
        bold = "bold" if account is document["total"] else ""
        table.add_row(
            safe_text(account["name"].strip("()") if bold else account["name"]),
            *(_figure(value, rate, priced) for value in figures),
            style=bold,
        )
    console = wide_console()
    console.print(table)
    total = document["total"]
    if total["by"] is not None:
        level = f"{document['level_ratio']:.0%}"
        told = f"by the {total['by']}, out of {total['history_days']:.0f} days; the truth is in "
        console.print(Text(f"{told}low to high {level} of the time", style="dim"))
    for warning in document["warnings"]:
        console.print(Text(f"! {warning}", style="yellow"))


def _figure(value: float | None, rate: float, priced: bool) -> str:
    if value is None or priced:
        return money(value, rate)
    return gpu_hours(round(value * _NS_PER_HOUR))
