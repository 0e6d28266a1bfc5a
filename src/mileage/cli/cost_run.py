"""What `mileage cost` does: reads rows, makes the bill, tells what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import typer

from mileage.cli.cost_arguments import CostArguments
from mileage.cli.cost_csv import check_csv, write_csv
from mileage.cli.cost_document import cost_document, encoded_cost
from mileage.cli.cost_format import gpu_hours, plural, share
from mileage.cli.cost_html import write_cost
from mileage.cli.cost_rows import Rows
from mileage.cli.cost_session import EMPTY, CostSession, session_of
from mileage.cli.cost_tables import show_bill
from mileage.cli.cost_window import Window
from mileage.cli.html_report import check_report
from mileage.core.errors import ConfigError
from mileage.ledger.account_name import ACCOUNTS, AccountNames
from mileage.ledger.bill import Bill
from mileage.ledger.bill_requests import BookNames
from mileage.ledger.billing_config import BillingConfig, IdleSpread
from mileage.ledger.calendar import HOUR_S, period_name
from mileage.ledger.token_cost import cached_token_ratio

__all__ = ["run_cost"]

_HOURS_MAX: Final = 72
_DAYS_MAX: Final = 200
_REQUESTS: Final = 1000
"""Accounts where they are requests and nothing else is asked for."""
_SATURATED_RATIO: Final = 0.05
"""Of GPU time: with more of it in saturated windows there is a warning."""


def run_cost(arguments: CostArguments) -> int:
    """Show the bill; the exit code: 3 where the ledger has nothing of that time."""
    session = session_of(arguments)
    billing = session.billing
    by_request = arguments.by == "request"
    names = BookNames() if by_request else session.names(arguments.by, (*ACCOUNTS, "request"))
    spread = _spread(arguments.spread, billing)
    if arguments.as_json and _csv_to_stdout(arguments):
        raise ConfigError("--csv", "-", "a file beside --json, which is on stdout, too")
    check_report(arguments.html, "--html")
    check_csv(arguments.csv)
    window = session.window(arguments.since, arguments.until)
    rows = _rows(session, names, spread, window)
    bill = session.bill(rows, names, spread, window)
    if by_request:
        bill = session.by_request(bill, rows, window)
    top = arguments.top or (_REQUESTS if by_request else None)
    if top is not None and not names.by_time:
        bill = bill.top(top)
    queued = session.engine_queue_s(a.name for a in bill.accounts) if by_request else None
    ratio = billing.cached_token_ratio
    document = cost_document(
        bill,
        window,
        billing,
        by=arguments.by,
        spread=spread,
        settled_until_utc_s=rows.settled_until_utc_s,
        cached_ratio=cached_token_ratio(rows.usage) if ratio is None else ratio,
        warnings=_warnings(bill, rows, window),
        engine_queue_s=queued,
    )
    if arguments.csv is not None:
        write_csv(arguments.csv, document)
    if arguments.html is not None:
        write_cost(arguments.html, document, _periods(session, rows, names, window))
    _show(arguments, document)
    return 0 if rows else 3


def _rows(session: CostSession, names: AccountNames, spread: IdleSpread, window: Window) -> Rows:
    """Hour by hour only where hours are told apart: days are far fewer."""
    hours = (window.until_utc_s - window.since_utc_s) / HOUR_S
    days = hours > _HOURS_MAX or names.group in ("day", "month")
    if not days or spread == "reservation" or names.group == "hour":
        texts = {*names.texts, "tenant"} if spread == "reservation" else names.texts
        return session.rows(window, tuple(texts))
    return session.day_rows(window, names.texts)


def _show(arguments: CostArguments, document: Mapping[str, Any]) -> None:
    if arguments.as_json:
        typer.echo(encoded_cost(document))
    elif not _csv_to_stdout(arguments):
        show_bill(document)


def _csv_to_stdout(arguments: CostArguments) -> bool:
    return arguments.csv is not None and str(arguments.csv) == "-"


def _spread(text: str | None, billing: BillingConfig) -> IdleSpread:
    if text is None:
        return billing.idle_spread
    for known in get_args(IdleSpread):
        if text == known:
            if known == "reservation" and not billing.reservations:
                expected = "none or use, without any [[billing.reservations]]"
                raise ConfigError("--spread", text, expected)
            return known  # type: ignore[no-any-return]
    raise ConfigError("--spread", text, f"one of {', '.join(get_args(IdleSpread))}")


def _periods(
    session: CostSession, rows: Rows, names: AccountNames, window: Window
) -> list[tuple[str, Bill]]:
    """The bill of each hour, day or month, as many of them as a chart can show; idle time apart."""
    length_h = (window.until_utc_s - window.since_utc_s) / HOUR_S
    period = "hour" if length_h <= _HOURS_MAX else "day"
    period = "month" if length_h > _DAYS_MAX * 24 else period
    period = names.group if names.by_time else period
    if names.by_time or names.group == "request":
        names = AccountNames("tenant", window.zone)
    parts: dict[str, Rows] = {}
    for hour in sorted(rows.hours()):
        name = period_name(hour, period, window.zone)  # type: ignore[arg-type]
        parts.setdefault(name, Rows([], [], None))
    for usage in rows.usage:
        name = period_name(usage.hour_at_utc_s, period, window.zone)  # type: ignore[arg-type]
        parts[name].usage.append(usage)
    for capacity in rows.capacity:
        name = period_name(capacity.hour_at_utc_s, period, window.zone)  # type: ignore[arg-type]
        parts[name].capacity.append(capacity)
    return [
        (_short(name, period), session.bill(part, names, "none", window))
        for name, part in parts.items()
    ]


def _short(name: str, period: str) -> str:
    """The name for an axis: hours without their zone."""
    return name[:16].replace("T", " ") if period == "hour" else name


def _warnings(bill: Bill, rows: Rows, window: Window) -> list[str]:
    if not rows:
        return [EMPTY]
    found = []
    total_ns = bill.total.gpu_ns
    unpriced = [r for r in bill.replicas if r.total.unpriced_ns]
    if unpriced:
        what = ", ".join(sorted({f"{r.replica} ({r.gpu or 'GPU not known'})" for r in unpriced}))
        found.append(
            f"no price of {what}: {gpu_hours(bill.total.unpriced_ns)} GPU-hours are counted, not "
            "priced; [[billing.prices]] or engines.gpu can tell"
        )
    unattributed_ns = bill.where["unattributed"].gpu_ns
    if unattributed_ns:
        found.append(
            f"{share(unattributed_ns, total_ns)} of GPU time is nobody's: mileage cost verify"
        )
    saturated_ns = sum(account.use.saturated_ns for account in bill.accounts)
    if saturated_ns > _SATURATED_RATIO * total_ns:
        found.append(
            f"{share(saturated_ns, total_ns)} of GPU time was in windows in which engines "
            "preempted or queued requests: shares are less certain than their intervals say"
        )
    if rows.tail is not None:
        found.append(_of_tail(rows, window))
    return found


def _of_tail(rows: Rows, window: Window) -> str:
    """What of the window may still change."""
    settled, told = rows.settled_until_utc_s, "what is running has no share in it yet"
    if settled is None:
        return f"nothing is settled yet: {told}"
    minutes = plural(max(1, round((window.until_utc_s - settled) / 60)), "minute")
    return f"the last {minutes} may still change: {told}"
