"""`mileage simulate cache`: eviction policies on a trace's prefix blocks, beside the optimum."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Self

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mileage.cli.cache_baselines import BASELINES, baseline_hits
from mileage.cli.progress import Steps
from mileage.cli.trace_source import open_trace
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EVICTION_POLICIES, EvictionConfig, make_eviction
from mileage.sim.cache_optimum import CacheOptimum
from mileage.sim.cache_replay import CacheResult, cache_result, replay_cache
from mileage.sim.cache_trace import CacheTrace

__all__ = ["cache"]

_SIZES_MAX: Final = 64


def cache(
    trace: Annotated[
        str,
        typer.Option(help="A trace whose requests tell their prefix blocks (see mileage trace)."),
    ],
    size: Annotated[
        str,
        typer.Option(
            help="Sizes of the cache: percent of the trace's different blocks, or blocks."
        ),
    ] = "1%,2%,5%,10%",
    policy: Annotated[
        str,
        typer.Option(
            help="Eviction policies: return_aware, lru, lru_k_heat; with the package libcachesim "
            "also libcachesim-arc, -clock, -lecar, -lfu, -lhd, -lru, -s3fifo, -sieve, -wtinylfu."
        ),
    ] = "return_aware,lru",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Replay a trace's prompts against prefix caches, and set each beside the best one possible.

    The optimum knows the future; it cannot be exceeded. Hits are counted in blocks. Each prompt is
    stored and evicted at once, without time on an engine. The baselines of libcachesim are not held
    to the prefix rule, which flatters them.

    Example: mileage simulate cache --trace mooncake.jsonl --size 1%,5% --policy return_aware,lru
    """
    policies = _policies(policy)
    sizes = _sizes(size)
    console = Console(stderr=True, highlight=False)
    with Steps(console) as steps, open_trace(trace, progress=steps, key="--trace") as opened:
        blocks = CacheTrace(opened, name=opened.name)
    results = _replay(blocks, policies, sizes, console)
    if as_json:
        typer.echo(msgspec.json.encode(_document(trace, blocks, results)))
    else:
        _show(blocks, results)


def _policies(text: str) -> list[str]:
    """Raises ConfigError for a name that is none."""
    known = (*EVICTION_POLICIES, *BASELINES)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5) or known
            raise ConfigError("--policy", name, f"one of {', '.join(near)}")
    return list(dict.fromkeys(names))


def _sizes(text: str) -> dict[str, float | int]:
    """A share (float) or a number of blocks (int) by the text of it. Raises ConfigError."""
    found: dict[str, float | int] = {}
    for part in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)%|(\d{1,12})", part, re.ASCII)
        value = None if match is None else float(match[1]) / 100 if match[1] else int(match[2])
        if not value or (isinstance(value, float) and value > 1.0):
            raise ConfigError("--size", part, "a share up to 100%, or a number of blocks: 5%,2000")
        found[part] = value
    if len(found) > _SIZES_MAX:
        raise ConfigError("--size", text, f"at most {_SIZES_MAX} sizes")
    return found


def _replay(
    trace: CacheTrace, policies: list[str], sizes: dict[str, float | int], console: Console
) -> list[CacheResult]:
    """Every policy at every size. Raises ConfigError for a size of less than one block."""
    absolute = {
        text: int(value * trace.blocks) if isinstance(value, float) else value
        for text, value in sizes.items()
    }
    for text, blocks_max in absolute.items():
        if not blocks_max:
            raise ConfigError("--size", text, f"at least one of {trace.blocks} blocks")
    results = []
    optimum = CacheOptimum(trace)
    with _Runs(console, len(trace), len(absolute) * (len(policies) + 1)) as runs:
        for text, blocks_max in absolute.items():
            best = optimum.hits(blocks_max, tick=runs.begin(f"optimum at {text}"))
            for name in policies:
                hits = _hits(trace, name, blocks_max, runs.begin(f"{name} at {text}"))
                counts = {"blocks_max": blocks_max, "hits": hits, "optimum_hits": best}
                results.append(cache_result(trace, name, text, **counts))
    return results


class _Runs:
    """A bar over all runs, where there is a terminal."""

    def __init__(self, console: Console, requests: int, runs: int) -> None:
        self._requests, self._begun = requests, 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("replaying", total=requests * runs)

    def begin(self, label: str) -> Callable[[int], None]:
        """The next run; gives what is told how many of its requests are done."""
        before = self._begun * self._requests
        self._begun += 1
        self._bar.update(self._task, description=label, completed=before)
        return lambda done: self._bar.update(self._task, completed=before + done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()


def _hits(trace: CacheTrace, policy: str, blocks_max: int, tick: Callable[[int], None]) -> int:
    if policy in EVICTION_POLICIES:
        ranks = make_eviction(EvictionConfig(policy=policy), blocks_max=blocks_max)
        return replay_cache(trace, ranks, blocks_max=blocks_max, tick=tick)
    return baseline_hits(trace, policy, blocks_max=blocks_max, tick=tick)


def _document(name: str, trace: CacheTrace, results: list[CacheResult]) -> dict[str, Any]:
    return {
        "trace": name,
        "requests": len(trace),
        "requests_without_blocks": trace.unknown,
        "block_tokens": trace.block_tokens,
        "blocks": trace.blocks,
        "references": trace.references,
        "results": results,
    }


def _show(trace: CacheTrace, results: list[CacheResult]) -> None:
    console = wide_console()
    console.print(
        f"{len(trace):,} requests, {trace.references:,} blocks of {trace.block_tokens} tokens, "
        f"{trace.blocks:,} of them different"
    )
    if trace.unknown:
        console.print(f"{trace.unknown:,} more requests do not tell their blocks")
    table = Table(box=None, pad_edge=False)
    for column in ("size", "blocks", "policy", "hit ratio", "optimum", "share of optimum"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    before = None
    for result in results:
        share = result.share_of_optimum_ratio
        first = result.size != before
        before = result.size
        table.add_row(
            result.size if first else "",
            f"{result.blocks_max:,}" if first else "",
            result.policy,
            f"{result.hit_ratio:.1%}",
            f"{result.optimum_hit_ratio:.1%}",
            "-" if share is None else f"{share:.1%}",
        )
    console.print(table)
