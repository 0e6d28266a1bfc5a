"""`mileage cost focus`: the bill as a FOCUS 1.2 file, for tools that read cloud bills."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mileage.cli.cost_arguments import SourceArguments
from mileage.cli.cost_session import EMPTY, session_of
from mileage.cli.focus_files import write_focus_csv, write_focus_parquet
from mileage.cli.simulate_arguments import taking
from mileage.cli.terminal_text import safe_text
from mileage.cli.whole_file import check_place, whole_file
from mileage.core.errors import ConfigError
from mileage.ledger.bill_cells import cells_of
from mileage.ledger.calendar import local_time
from mileage.ledger.focus import FocusNames, UnpricedTime, focus_rows
from mileage.loadgen.run_rows import require_parquet

__all__ = ["register_focus"]

_PERIODS: Final = ("hour", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusArguments(SourceArguments):
    """Of `mileage cost focus`."""

    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")]
    since: Annotated[
        str, typer.Option(help="From then on, as of `mileage cost`: 30d, last-month, 2026-01.")
    ] = "this-month"
    until: Annotated[str | None, typer.Option(help="Up to then. [default: now]")] = None
    granularity: Annotated[str, typer.Option(help="Charges by the hour or by the day.")] = "day"
    provider: Annotated[
        str, typer.Option(help="ProviderName, PublisherName and InvoiceIssuerName.")
    ] = FocusNames().provider
    billing_account: Annotated[str, typer.Option(help="BillingAccountId.")] = (
        FocusNames().billing_account_id
    )


def register_focus(group: typer.Typer) -> None:
    """Register `focus` with the group."""
    group.command(name="focus")(focus)


@taking(FocusArguments)
def focus(context: typer.Context, arguments: FocusArguments) -> None:
    """Write the bill as FOCUS 1.2 (FinOps Open Cost and Usage Specification).

    One row per hour or day, replica, tenant, model, adapter, key, labels and kind of use; idle and
    warm-up time are rows without a tenant. The sum of BilledCost is the bill's total exactly. Exits
    with 3, and writes nothing, where a GPU has no price.

    Example: mileage cost focus --since last-month --out bill.csv
    """
    _check_out(arguments.out)
    if arguments.granularity not in _PERIODS:
        raise ConfigError("--granularity", arguments.granularity, " or ".join(_PERIODS))
    session = session_of(arguments)
    billing = session.billing
    window = session.window(arguments.since, arguments.until)
    rows = session.rows(window)
    unpriced: list[UnpricedTime] = []
    made = list(
        focus_rows(
            cells_of(rows.usage, rows.capacity, session.book),
            names=FocusNames(
                provider=arguments.provider,
                billing_account_id=arguments.billing_account,
                billing_account_name=arguments.billing_account,
            ),
            period="hour" if arguments.granularity == "hour" else "day",
            zone=session.zone,
            currency=billing.currency,
            currency_per_usd=billing.currency_per_usd or 1.0,
            team_of=billing.team_of,
            unpriced=unpriced,
        )
    )
    if unpriced:
        _tell_unpriced(unpriced)
        raise typer.Exit(3)
    if not made:
        typer.echo(f"mileage: {EMPTY}", err=True)
        raise typer.Exit(3)
    with whole_file(arguments.out, key="--out") as file:
        if arguments.out.suffix == ".csv":
            write_focus_csv(file, made)
        else:
            write_focus_parquet(file, made, key="--out")
    cost = sum((row.BilledCost for row in made), Decimal(0))
    if arguments.as_json:
        document = {
            "file": str(arguments.out),
            "rows": len(made),
            "billed_cost": f"{cost:f}",
            "currency": billing.currency,
            "window": window.document(),
        }
        typer.echo(msgspec.json.encode(document))
    else:
        name = safe_text(str(arguments.out))
        typer.echo(f"wrote {name}: {len(made)} rows, {cost:.2f} {billing.currency}")


def _tell_unpriced(unpriced: list[UnpricedTime]) -> None:
    for replica in sorted({each.replica for each in unpriced}):
        first = min(each.hour_at_utc_s for each in unpriced if each.replica == replica)
        since = local_time(first, dt.UTC).strftime("%Y-%m-%d %H:%M")
        typer.echo(
            f"mileage: {safe_text(replica)} has no price since {since} UTC: set"
            " costs.usd_per_gpu_hour, engines.gpu or an entry of [[billing.prices]]"
            " (mileage cost prices shows what holds)",
            err=True,
        )


def _check_out(out: Path) -> None:
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError("--out", str(out), "a file that ends in .csv or .parquet")
    if out.suffix == ".parquet":
        require_parquet("--out")
    check_place(out, key="--out")
