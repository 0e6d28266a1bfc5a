"""The HTML report of `mileage cost --html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mileage import __version__
from mileage.cli.cost_format import gpu_hours, money, plural, share, short_count
from mileage.cli.cost_tables import KINDS, interval_of
from mileage.cli.html_report import write_page
from mileage.ledger.bill import Bill

if TYPE_CHECKING:
    from mileage.dashboard.cost_report import CostSeries

__all__ = ["SHOWN", "cost_html", "write_cost"]

SHOWN: Final = 6
"""Accounts that have a colour of their own in the chart over time."""
_ROWS: Final = 500
_NANO: Final = 1e9
_NS_PER_HOUR: Final = 3.6e12


def write_cost(
    path: Path, document: Mapping[str, Any], periods: Sequence[tuple[str, Bill]]
) -> None:
    """Write the report; the file is whole, or as it was before. Raises FileError."""
    write_page(path, cost_html(document, periods), key="--html")


def cost_html(document: Mapping[str, Any], periods: Sequence[tuple[str, Bill]]) -> str:
    """The page, of a bill's document, and the bill of each period in it, by the same accounts."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.cost_report import CostPage, cost_page
    from mileage.dashboard.report_page import ReportRow

    code, rate = document["currency"]["code"], document["currency"]["per_usd"]
    priced = document["usd_total"] is not None
    key, scale = ("usd", rate) if priced else ("gpu_ns", 1 / _NS_PER_HOUR)
    whole_ns = document["gpu_ns_total"]
    rows = [_row(ReportRow, each, whole_ns, rate) for each in document["accounts"][:_ROWS]]
    blank = ("",) * 7
    idle = (
        gpu_hours(document["idle_gpu_ns"]),
        money(document["idle_usd"], rate),
        share(document["idle_gpu_ns"], whole_ns),
    )
    rows.append(ReportRow(name="(idle)", cells=(*idle, *blank)))
    total = (gpu_hours(whole_ns), money(document["usd_total"], rate), "100%")
    rows.append(ReportRow(name="total", cells=(*total, *blank)))
    window = document["window"]
    facts = [
        ("window", f"{window['since'][:16]} to {window['until'][:16]}, {window['timezone']}"),
        ("idle time", _SPREAD[document["spread"]]),
    ]
    left_out = len(document["accounts"]) - _ROWS
    if left_out > 0:
        facts.append(("not shown", plural(left_out, "account")))
    return cost_page(
        CostPage(
            verdict=_verdict(document, code, rate),
            facts=tuple(facts),
            tiles=_tiles(document, code, rate),
            warnings=tuple(document["warnings"]),
            by=document["by"],
            unit=code if priced else "GPU-hours",
            columns=(
                *("GPU-hours", code, "share", "+-", "requests", f"{code}/request", "prompt"),
                *("cached", "output", f"{code}/Mtok out"),
            ),
            rows=tuple(rows),
            periods=tuple(name for name, _ in periods),
            accounts=_accounts(periods, priced, rate),
            kinds=_kinds(periods, priced, rate),
            where=tuple(
                (name, float(document["where"][kind][key]) * scale)
                for kind, name in KINDS.items()
                if document["where"][kind]["gpu_ns"]
            ),
            prices=tuple(_price(ReportRow, replica) for replica in document["replicas"]),
            footer=f"mileage {__version__}",
        )
    )


_SPREAD: Final = {
    "none": "an account of its own",
    "use": "paid by all in proportion to their use",
    "reservation": "paid by those who did not use what they had reserved",
}


def _verdict(document: Mapping[str, Any], code: str, rate: float) -> str:
    whole_ns, usd = document["gpu_ns_total"], document["usd_total"]
    idle = share(document["where"]["idle"]["gpu_ns"], whole_ns)
    paid = f"{money(usd, rate)} {code}" if usd is not None else "GPU time without a price"
    return f"{paid} for {gpu_hours(whole_ns)} GPU-hours, of which {idle} were idle"


def _tiles(document: Mapping[str, Any], code: str, rate: float) -> tuple[tuple[str, str], ...]:
    accounts = document["accounts"]
    requests = sum(each["requests"] for each in accounts)
    output_tokens = sum(each["output_tokens"] for each in accounts)
    usd = document["usd_total"]
    per_request = None if usd is None or not requests else float(usd) / requests
    per_mtok = None if usd is None or not output_tokens else float(usd) / output_tokens * 1e6
    return (
        (f"total, {code}", money(usd, rate)),
        ("GPU-hours", gpu_hours(document["gpu_ns_total"])),
        ("requests", f"{requests:,}"),
        (f"{code} per request, all in", money(per_request, rate)),
        (f"{code} per million output tokens, all in", money(per_mtok, rate)),
    )


def _row(row: Any, account: Mapping[str, Any], whole_ns: int, rate: float) -> Any:
    requests = account["requests"]
    tokens = [short_count(account[f"{kind}_tokens"]) for kind in ("prompt", "cached", "output")]
    return row(
        name=account["name"],
        cells=(
            gpu_hours(account["gpu_ns"]),
            money(account["usd"], rate),
            share(account["gpu_ns"], whole_ns),
            interval_of(account),
            f"{requests:,}" if requests else "",
            money(account["usd_per_request"], rate) if requests else "",
            *(count if requests else "" for count in tokens),
            money(account["usd_per_mtok"]["output"], rate) if requests else "",
        ),
    )


def _price(row: Any, replica: Mapping[str, Any]) -> Any:
    usd = replica["usd_per_gpu_hour"]
    return row(
        name=replica["replica"],
        cells=(
            f"{replica['gpus']:g} x {replica['gpu'] or 'unknown'}",
            "not known" if usd is None else f"{usd:.4g}",
            "; ".join(filter(None, (replica["price_source"], replica["price_note"]))) or "-",
            replica["price_date"] or "-",
        ),
    )


def _accounts(
    periods: Sequence[tuple[str, Bill]], priced: bool, rate: float
) -> tuple[CostSeries, ...]:
    from mileage.dashboard.cost_report import CostSeries

    sums: dict[str, float] = {}
    values: dict[str, list[float]] = {}
    for place, (_, bill) in enumerate(periods):
        idle = [("(idle)", bill.idle)]
        for name, amount in [*((a.name, a.total) for a in bill.accounts), *idle]:
            value = _value(amount, priced, rate)
            sums[name] = sums.get(name, 0.0) + value
            values.setdefault(name, [0.0] * len(periods))[place] = value
    own = sorted((n for n in sums if not _rest(n)), key=lambda name: -sums[name])
    series = [CostSeries(name=name, values=tuple(values[name])) for name in own[:SHOWN]]
    if own[SHOWN:]:
        columns = zip(*(values[name] for name in own[SHOWN:]), strict=True)
        series.append(CostSeries(name="(others)", values=tuple(map(sum, columns)), rest=False))
    series.extend(
        CostSeries(name=name, values=tuple(values[name]), rest=True)
        for name in sums
        if _rest(name) and sums[name]
    )
    return tuple(series)


def _kinds(
    periods: Sequence[tuple[str, Bill]], priced: bool, rate: float
) -> tuple[CostSeries, ...]:
    from mileage.dashboard.cost_report import CostSeries

    found = []
    for kind, name in KINDS.items():
        values = tuple(_value(bill.where[kind], priced, rate) for _, bill in periods)
        if any(values):
            rest = kind in ("idle", "warmup", "unattributed")
            found.append(CostSeries(name=name, values=values, rest=rest))
    return tuple(found)


def _value(amount: Any, priced: bool, rate: float) -> float:
    if priced:
        return float(amount.nano_usd) / _NANO * rate
    return float(amount.gpu_ns) / _NS_PER_HOUR


def _rest(name: str) -> bool:
    return name in ("(idle)", "(warm-up)", "(unattributed)")
