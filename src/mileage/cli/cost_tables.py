"""What `mileage cost` shows to people: an account per line, idle time, the total, where it went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.cost_format import gpu_hours, money, share, short_count
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = ["KINDS", "interval_of", "show_bill", "where_line"]

KINDS: Final = {
    "prefill": "prefill",
    "decode": "decode",
    "recomputed": "recomputed",
    "failed": "failures",
    "idle": "idle",
    "warmup": "warm-up",
    "unattributed": "unattributed",
}
"""Where dollars go, in the order and under the names in which they are shown."""

_WIDE: Final = 112
_ROWS: Final = 40


def show_bill(document: Mapping[str, Any], console: Console | None = None) -> None:
    """The table, and what it says."""
    console = console or wide_console()
    wide = console.width >= _WIDE
    code, rate = document["currency"]["code"], document["currency"]["per_usd"]
    window = document["window"]
    console.print(
        Text(f"{window['since'][:16]} to {window['until'][:16]} {window['timezone']}", style="dim")
    )
    table = Table(box=None, pad_edge=False)
    table.add_column(document["by"], no_wrap=True, overflow="ellipsis", min_width=12, max_width=40)
    names = ["GPU-hours", code, "share", "+-", "requests", f"{code}/request"]
    if wide:
        names += ["prompt", "cached", "output", f"{code}/Mtok in", "out"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    whole_ns = document["gpu_ns_total"]
    for account in document["accounts"][:_ROWS]:
        table.add_row(*_cells(account, whole_ns, rate, wide))
    hidden = len(document["accounts"]) - _ROWS
    if hidden > 0:
        table.add_row(Text(f"... {hidden} more (--top, --json)", style="dim"))
    blank = [""] * (len(names) - 3)
    idle_ns = document["idle_gpu_ns"]
    table.add_row(
        Text("(idle)"),
        gpu_hours(idle_ns),
        money(document["idle_usd"], rate),
        share(idle_ns, whole_ns),
        *blank,
        style="dim",
        end_section=True,
    )
    requests = sum(account["requests"] for account in document["accounts"])
    table.add_row(
        "total",
        gpu_hours(whole_ns),
        money(document["usd_total"], rate),
        "100%" if whole_ns else "-",
        "",
        f"{requests:,}",
        *blank[2:],
        style="bold",
    )
    console.print(table)
    console.print()
    console.print(Text(where_line(document)))
    for line in _price_lines(document):
        console.print(Text(safe_text(line).plain, style="dim"))
    for warning in document["warnings"]:
        console.print(Text(safe_text(f"! {warning}").plain, style="yellow"))


def _cells(account: Mapping[str, Any], whole_ns: int, rate: float, wide: bool) -> list[Any]:
    requests = account["requests"]
    cells = [
        safe_text(account["name"]),
        gpu_hours(account["gpu_ns"]),
        money(account["usd"], rate),
        share(account["gpu_ns"], whole_ns),
        interval_of(account),
        f"{requests:,}" if requests else "",
        money(account["usd_per_request"], rate) if requests else "",
    ]
    if wide:
        per = account["usd_per_mtok"]
        tokens = [account[f"{kind}_tokens"] for kind in ("prompt", "cached", "output")]
        cells += [short_count(count) if requests else "" for count in tokens]
        cells += [money(per[kind], rate) if requests else "" for kind in ("prompt", "output")]
    return cells


def interval_of(account: Mapping[str, Any]) -> str:
    """How far off the account may be, of its amount; empty where it is exact."""
    low, high = account["interval"]["gpu_ns"]
    gpu_ns = account["gpu_ns"]
    if not gpu_ns or low == high:
        return ""
    return f"{max(high - gpu_ns, gpu_ns - low) / gpu_ns:.0%}"


def where_line(document: Mapping[str, Any]) -> str:
    """Where each dollar went, or GPU time without a price."""
    where, whole_ns = document["where"], document["gpu_ns_total"]
    priced = document["usd_total"] is not None
    whole = document["usd_total"] if priced else whole_ns
    shares = [
        f"{name} {share(float(amount), float(whole))}"
        for kind, name in KINDS.items()
        if (amount := where[kind]["usd" if priced else "gpu_ns"])
    ]
    return f"{'dollars' if priced else 'GPU time'} went to: " + (", ".join(shares) or "nothing")


def _price_lines(document: Mapping[str, Any]) -> list[str]:
    """Each price once, with the replicas that it is of."""
    by_price: dict[tuple[Any, ...], list[str]] = {}
    for replica in document["replicas"]:
        if replica["usd_per_gpu_hour"] is not None:
            key = (replica["usd_per_gpu_hour"], replica["price_source"], replica["price_note"])
            by_price.setdefault(key, []).append(replica["replica"])
    lines = []
    for (usd, source, note), replicas in by_price.items():
        shown = ", ".join(replicas[:3]) + (f" and {len(replicas) - 3} more" if replicas[3:] else "")
        lines.append(f"{usd:.4g} USD/GPU-hour ({shown}): {source}{f'; {note}' if note else ''}")
    return lines
