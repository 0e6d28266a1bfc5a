"""`mileage simulate fit`: learns how a running engine behaves from what a gateway recorded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from mileage.cli.config import ledger_directory, load_config
from mileage.cli.progress import Steps
from mileage.cli.simulate_format import count, percent, seconds
from mileage.cli.terminal_text import safe_text
from mileage.cli.trace_records import journal_handlings, ledger_timelines
from mileage.cli.whole_file import check_place, whole_file
from mileage.cli.wide_console import wide_console
from mileage.control.config import ControlConfig
from mileage.core.errors import ConfigError, TraceError
from mileage.core.events import Observed
from mileage.core.timeline import RequestTimeline
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.costmodel.learn_engine import KnownLimits, learn_engine
from mileage.costmodel.served import ServedRequest, served_of_events, served_of_timelines
from mileage.storage.journal_files import find_journals
from mileage.storage.journal_reader import JournalReader
from mileage.storage.sqlite import DATABASE_NAME

__all__ = ["fit"]

_LAST: Final = 20_000
_NOT_ENOUGH: Final = 3
_LIMIT_MAX: Final = 1_000_000

MaxSeqs = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_LIMIT_MAX,
        help="Requests that it runs at once. [default: as recorded, else as seen]",
    ),
]
StepTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_LIMIT_MAX,
        help="Tokens of one step. [default: what explains its steps best]",
    ),
]


def fit(
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger directory. [default: of the configuration, without --journal]"),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            help="Journal directory: limits of the engine; without --ledger, all is from it."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None,
    replica: Annotated[
        str | None, typer.Option(help="Of which engine. [default: that with most answers]")
    ] = None,
    last: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Learn from so many of the latest answers.")
    ] = _LAST,
    engine_max_seqs: MaxSeqs = None,
    engine_tokens: StepTokens = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that its KV cache holds. [default: as recorded]"),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("fitted.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Learn how an engine behaves from what a gateway recorded while it served.

    Writes its step times, limits and habits into a file that mileage simulate takes as its engine.
    The ledger has the time of every token, and with it every step; a journal only the mean step of
    each answer. Works beside a running gateway. Exits with 3 where there is too little to learn
    from.

    Example: mileage simulate fit --ledger ~/.local/state/mileage/ledger --out fitted.json
    """
    _check_places(out, journal)
    models: Counter[str] = Counter()
    with Steps(Console(stderr=True, highlight=False)) as steps:
        if journal is not None and ledger is None:
            source, recorded = journal, served_of_events(journal_handlings(journal, steps))
        else:
            source = _ledger(config, ledger)
            recorded = served_of_timelines(_counted(ledger_timelines(source), models))
        served = _of_one(list(deque(recorded, last)), replica, source)
    told = KnownLimits() if journal is None else _limits(journal, served[0].replica)
    limits = KnownLimits(
        engine_max_seqs or told.running_max, engine_tokens, kv_tokens or told.kv_tokens_max
    )
    model = max(models, key=models.__getitem__, default="model")
    try:
        fitted = learn_engine(served, limits=limits, model=model, engine=served[0].replica)
    except ConfigError as error:
        if error.key not in ("samples", "records"):
            raise _by_option(error) from None
        typer.echo(f"mileage: too little to learn from in {source}: {error}", err=True)
        raise typer.Exit(_NOT_ENOUGH) from None
    _write(out, fitted, as_json=as_json)


def _check_places(out: Path, journal: Path | None) -> None:
    """Before anything is learned. Raises ConfigError."""
    if out.suffix != ".json":
        raise ConfigError("--out", str(out), "a file that ends in .json")
    check_place(out, key="--out")
    if journal is not None:
        try:
            find_journals([journal])
        except ConfigError as error:
            raise error.named("--journal") from None


def _by_option(error: ConfigError) -> ConfigError:
    """A limit that was told here and cannot be, by its option."""
    option = {"running_max": "--engine-max-seqs", "step_tokens_max": "--engine-tokens"}
    expected = error.expected.replace("step_tokens_max", "the tokens of a step")
    return ConfigError(option.get(error.key, error.key), error.value, expected)


def _ledger(config: Path | None, ledger: Path | None) -> Path:
    flags = {"ledger.directory": None if ledger is None else str(ledger)}
    directory = ledger_directory(load_config(config, flags).ledger)
    if not (directory / DATABASE_NAME).exists():
        raise ConfigError("--ledger", str(directory), f"a directory with a {DATABASE_NAME}")
    return directory


def _counted(
    timelines: Iterable[RequestTimeline], models: Counter[str]
) -> Iterable[RequestTimeline]:
    for line in timelines:
        if line.outcome == "ok":
            models[line.model] += 1
        yield line


def _limits(journal: Path, replica: str) -> KnownLimits:
    """What the latest configuration and views of each worker say of the engine; the most of it."""
    running: list[int] = []
    kv_tokens: list[int] = []
    for files in find_journals([journal]):
        with JournalReader(files[-1].path) as reader:
            header = reader.header()
            if header is None:
                continue
            try:
                config = msgspec.json.decode(header.config, type=ControlConfig)
            except msgspec.MsgspecError as error:
                message = f"the configuration is not of this version: {error}"
                raise TraceError(str(files[-1].path), 0, message) from None
            running.append(config.replica_running_max.get(replica, 0))
            for record in reader.records(lambda _done: None):
                event = record.event
                if isinstance(event, Observed) and event.view.replica == replica:
                    running.append(event.view.running_max or 0)
                    kv_tokens.append(event.view.kv_tokens_max or 0)
    return KnownLimits(
        running_max=max(running, default=0) or None,
        kv_tokens_max=max(kv_tokens, default=0) or None,
    )


def _of_one(
    served: Sequence[ServedRequest], replica: str | None, source: Path
) -> list[ServedRequest]:
    """The answers of one engine."""
    counts = Counter(each.replica for each in served)
    if not counts:
        typer.echo(f"mileage: no answer with its token counts in {source}", err=True)
        raise typer.Exit(_NOT_ENOUGH)
    if replica is None:
        replica = max(counts, key=counts.__getitem__)
        if len(counts) > 1:
            typer.echo(f"mileage: learning of {replica}, of {len(counts)} engines", err=True)
    elif replica not in counts:
        known = ", ".join(sorted(counts))
        raise ConfigError("--replica", replica, f"an engine with answers in {source}: {known}")
    return [each for each in served if each.replica == replica]


def _write(path: Path, fitted: FittedEngine, *, as_json: bool) -> None:
    """Into the file, and what it is to stdout."""
    with whole_file(path, key="--out") as file:
        file.write(fitted.to_json())
    if as_json:
        typer.echo(msgspec.json.encode({"file": str(path), **msgspec.to_builtins(fitted)}))
    else:
        _show(path, fitted)


def _show(path: Path, fitted: FittedEngine) -> None:
    seen, steps = fitted.seen, fitted.steps
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("")
    told = "" if fitted.running_max_told else " (the most seen; tell it with --engine-max-seqs)"
    of_step = "" if fitted.step_tokens_told else " (by its steps; tell it with --engine-tokens)"
    kv = "not known (--kv-tokens)" if fitted.kv_tokens_max is None else count(fitted.kv_tokens_max)
    rows = [
        ("engine", f"{steps.engine}, {fitted.model}"),
        ("learned from", f"{seen.requests:,} answers over {seconds(seen.duration_s)}"),
        ("", f"{steps.samples:,} {_KINDS[fitted.kind]}, median error {percent(steps.error_ratio)}"),
        *(
            ("a step takes" if not n else "or, where longer,", _plane(p))
            for n, p in enumerate(steps.planes)
        ),
        *(
            [("with prompts", f"{seconds(steps.prompt_offset_s)} more")]
            if steps.prompt_offset_s
            else []
        ),
        ("requests at once", f"{fitted.running_max:,}{told}"),
        ("tokens of a step", f"{fitted.step_tokens_max:,}{of_step}"),
        ("tokens of the KV cache", kv),
        ("found in its cache", f"{fitted.shared_prompt_tokens:,} tokens of every prompt"),
        ("before a first token", f"{seconds(fitted.first_token_s)} beside its steps"),
        ("seen", f"up to {seen.running_max} requests at once, {seen.kv_tokens_max:,} tokens"),
        (
            "",
            f"prompts up to {seen.prompt_tokens_max:,} tokens, answers {seen.output_tokens_max:,}",
        ),
        ("wrote", str(path)),
    ]
    for name, text in rows:
        table.add_row(name, safe_text(text))
    console = wide_console()
    console.print(table)


_KINDS: Final = {"steps": "single steps", "answers": "answers' mean steps"}


def _plane(plane: Sequence[float]) -> str:
    start_s, request_s, kv_s, prefill_s = plane
    return (
        f"{start_s * 1e3:.3g} ms + {request_s * 1e3:.3g} ms a request + "
        f"{kv_s * 1e6:.3g} us a token of context + {prefill_s * 1e3:.3g} ms a prompt token"
    )
