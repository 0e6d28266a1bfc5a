"""What `mileage trace describe` tells: one document, or tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from rich.console import Console
from rich.table import Table

from mileage.cli.terminal_text import safe_text
from mileage.measure.quantiles import quantile_of_runs
from mileage.workload.census import Census
from mileage.workload.read_options import ReadTally

__all__ = ["TraceReport", "report_of", "show_report"]

_NAMES_SHOWN = 10
_BARS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 60


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a request; quantiles are lengths that occur."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    total: int
    per_s: float | None


class Prefixes(msgspec.Struct, frozen=True, kw_only=True):
    """What prompts share. `reuse_ratio`: the share of blocks that an unlimited cache would have."""

    block_tokens: list[int]
    blocks: int
    unique_blocks: int
    exact: bool
    reuse_ratio: float


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant, model or the like."""

    name: str
    requests: int
    ratio: float


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, and the most frequent ones."""

    count: int
    top: list[Share]


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole trace. None: there is nothing of it in the trace, or too little to tell."""

    trace: str
    format: str | None
    records: int | None
    """In the file; None for synthetic ones."""
    failed: int
    """Records that generated nothing."""
    reordered: int
    requests: int
    duration_s: float
    """From 0 to the last arrival."""
    rate_rps: float | None
    rate_peak_rps: float | None
    """Of the busiest bin."""
    bin_s: float
    rates_rps: list[float]
    gap_cv: float | None
    dispersion_1s: float | None
    dispersion_60s: float | None
    same_moment_ratio: float
    """The share of requests that arrive at the very moment of another before them."""
    prompt_tokens: Lengths | None
    output_tokens: Lengths | None
    media_tokens_ratio: float
    """The share of prompt tokens that images and audio stand for."""
    prefixes: Prefixes | None
    repeated_ratio: float
    """The share of requests that are identical to an earlier one."""
    conversations: int
    turns_mean: float | None
    stream_ratio: float
    modalities: dict[str, int]
    endpoints: dict[str, int]
    tenants: Names
    models: Names
    adapters: Names


def report_of(name: str, census: Census, tally: ReadTally) -> TraceReport:
    """The report on a trace that was counted to its end."""
    count, duration_s = census.requests, census.last_s
    bins = census.bins
    rates = [arrivals / bins.width_s for arrivals in bins.counts]
    talks = census.conversations.count
    repeated = census.with_content - census.contents.count
    return TraceReport(
        trace=name,
        format=tally.format,
        records=tally.records or None,
        failed=tally.failed,
        reordered=tally.reordered,
        requests=count,
        duration_s=duration_s,
        rate_rps=(count - 1) / duration_s if count > 1 and duration_s else None,
        rate_peak_rps=max(rates[:-1]) if len(rates) > 1 else None,
        bin_s=bins.width_s,
        rates_rps=rates,
        gap_cv=census.gaps.cv,
        dispersion_1s=census.seconds.dispersion,
        dispersion_60s=census.minutes.dispersion,
        same_moment_ratio=census.gaps.none / count if count else 0.0,
        prompt_tokens=_lengths(census.prompt_runs, census.prompt_tokens, duration_s),
        output_tokens=_lengths(census.output_runs, census.output_tokens, duration_s),
        media_tokens_ratio=census.media_tokens / max(1, census.prompt_tokens),
        prefixes=_prefixes(census),
        repeated_ratio=max(0, repeated) / count if count else 0.0,
        conversations=talks,
        turns_mean=census.in_conversation / talks if talks else None,
        stream_ratio=census.streams / count if count else 0.0,
        modalities=dict(census.modalities),
        endpoints=dict(census.endpoints),
        tenants=_names(census.tenants, count),
        models=_names(census.models, count),
        adapters=_names(census.adapters, count),
    )


def _lengths(runs: Mapping[int, int], total: int, duration_s: float) -> Lengths | None:
    if not runs:
        return None
    p50, p90, p99, most = (
        quantile_of_runs(((float(value), count) for value, count in runs.items()), q) or 0.0
        for q in (0.5, 0.9, 0.99, 1.0)
    )
    return Lengths(
        mean=total / sum(runs.values()),
        p50=p50,
        p90=p90,
        p99=p99,
        max=most,
        total=total,
        per_s=total / duration_s if duration_s else None,
    )


def _prefixes(census: Census) -> Prefixes | None:
    if not census.blocks:
        return None
    unique = census.unique_blocks.count
    return Prefixes(
        block_tokens=sorted(census.block_tokens),
        blocks=census.blocks,
        unique_blocks=unique,
        exact=census.unique_blocks.exact,
        reuse_ratio=max(0.0, 1.0 - unique / census.blocks),
    )


def _names(names: Counter[str], requests: int) -> Names:
    top = [
        Share(name=name, requests=count, ratio=count / requests)
        for name, count in names.most_common(_NAMES_SHOWN)
    ]
    return Names(count=len(names), top=top)


def show_report(report: TraceReport, console: Console) -> None:
    """The report as tables."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("")
    for label, text in _facts(report):
        if text:
            table.add_row(label, safe_text(text))
    console.print(table)
    lengths = Table(box=None, pad_edge=False)
    lengths.add_column("tokens a request")
    for name in ("mean", "p50", "p90", "p99", "max", "in all", "per second"):
        lengths.add_column(name, justify="right")
    for label, row in (("prompt", report.prompt_tokens), ("output", report.output_tokens)):
        if row is not None:
            cells = (row.mean, row.p50, row.p90, row.p99, row.max, row.total, row.per_s)
            lengths.add_row(label, *("" if c is None else f"{c:,.0f}" for c in cells))
    console.print(lengths)
    for label, names in (
        ("tenants", report.tenants),
        ("models", report.models),
        ("adapters", report.adapters),
    ):
        if names.count > 1 or (names.count and label != "tenants"):
            shares = ", ".join(f"{s.name} {s.ratio:.1%}" for s in names.top[:5])
            console.print(safe_text(f"{names.count} {label}: {shares}"))
    for note in _notes(report):
        console.print(safe_text(f"note: {note}"))


def _facts(report: TraceReport) -> list[tuple[str, str]]:
    bars = _bars(report.rates_rps)
    prefixes = report.prefixes
    shared = ""
    if prefixes is not None:
        about = "" if prefixes.exact else "about "
        shared = (
            f"{prefixes.reuse_ratio:.1%} of {prefixes.blocks:,} blocks seen before"
            f" ({about}{prefixes.unique_blocks:,} different ones)"
        )
    talks = report.conversations
    return [
        ("trace", report.trace),
        ("format", report.format or ""),
        ("requests", f"{report.requests:,}"),
        ("left out", f"{report.failed:,} that generated nothing" if report.failed else ""),
        ("duration", _time(report.duration_s)),
        ("rate", _number(report.rate_rps, "{:.4g} requests/s")),
        ("busiest", _number(report.rate_peak_rps, f"{{:.4g}} requests/s in {report.bin_s:g} s")),
        ("over time", f"|{bars}|" if bars else ""),
        ("CV of gaps", _number(report.gap_cv, "{:.3g} (1: Poisson)")),
        ("dispersion", _number(report.dispersion_1s, "{:.3g} in 1 s (1: Poisson)")),
        ("", _number(report.dispersion_60s, "{:.3g} in 60 s")),
        ("prefixes", shared),
        ("repeated", f"{report.repeated_ratio:.1%} of requests" if report.repeated_ratio else ""),
        ("conversations", f"{talks:,}, {report.turns_mean or 0:.2f} turns each" if talks else ""),
        ("modalities", _counts(report.modalities) if len(report.modalities) > 1 else ""),
        ("endpoints", _counts(report.endpoints) if set(report.endpoints) != {"chat"} else ""),
    ]


def _notes(report: TraceReport) -> list[str]:
    notes = []
    if report.reordered:
        notes.append(f"{report.reordered:,} {_stood(report.reordered)} behind a later one: sorted")
    if report.same_moment_ratio > 0.5:
        notes.append(
            f"{report.same_moment_ratio:.0%} of requests share their timestamp with another one:"
            " the clock of this trace is coarse, see --spread"
        )
    return notes


def _stood(records: int) -> str:
    return "record stood" if records == 1 else "records stood"


def _bars(rates: list[float]) -> str:
    if len(rates) < 2:
        return ""
    step = -(-len(rates) // _COLUMNS)
    means = [sum(rates[i : i + step]) / step for i in range(0, len(rates), step)]
    top = max(means)
    return "".join(_BARS[round(mean / top * (len(_BARS) - 1))] for mean in means)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.4g} s"
    if seconds < 7200:
        return f"{seconds / 60:.4g} min"
    return f"{seconds / 3600:.4g} h"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
