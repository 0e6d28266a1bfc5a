"""What `mileage plan` shows to people: the picks side by side, what binds them, how they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mileage.cli.simulate_format import count, percent, seconds, usd
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console

__all__ = [
    "PICK_NAMES",
    "cheaper_line",
    "cost_text",
    "distinct_front",
    "figure_rows",
    "search_line",
    "show_plan",
    "verdict_line",
]

PICK_NAMES: Final = {
    "cheapest": "cheapest",
    "low_latency": "low latency",
    "balanced": "balanced",
    "throughput": "most for the money",
}


def show_plan(document: Mapping[str, Any]) -> None:
    """All of it."""
    console = wide_console()
    chosen = picked(document)
    good = document["picks"]["cheapest"] is not None
    if chosen:
        console.print(_table(document, chosen))
        console.print()
    console.print(safe_text(verdict_line(document)), style="bold green" if good else "bold red")
    if (line := cheaper_line(document)) is not None:
        console.print(safe_text(line))
    for choice, names in chosen:
        _show_choice(console, choice, names)
    console.print()
    _show_front(console, document)
    console.print(Text(search_line(document), style="dim"))
    for each in (*document["search"]["impossible"], *document["search"]["ruled_out"]):
        console.print(safe_text(_out_line(each)), style="dim")
    console.print()
    for line in document["assumptions"]:
        console.print(safe_text(f"- {line}"), style="dim")


def picked(document: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """Each set-up that was picked, once, with the names that it was picked by."""
    names: dict[str, list[str]] = {}
    by_label: dict[str, Mapping[str, Any]] = {}
    given = {PICK_NAMES[key]: document["picks"][key] for key in PICK_NAMES}
    for name, choice in {**given, "nearest to the targets": document["closest"]}.items():
        if choice is not None:
            by_label[choice["label"]] = choice
            names.setdefault(choice["label"], []).append(name)
    return [(by_label[label], ", ".join(each)) for label, each in names.items()]


def figure_rows(
    document: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]
) -> list[tuple[str, list[str]]]:
    """Name and a text for each set-up."""
    quantile = f"p{document['targets']['attainment_ratio'] * 100:g}"
    return [
        ("GPUs", [str(each["gpus"]) for each in chosen]),
        ("cost per million output tokens", [cost_text(each) for each in chosen]),
        (f"time to first token, {quantile}", [_with(each, "ttft_s", seconds) for each in chosen]),
        (f"inter-token latency, {quantile}", [_with(each, "itl_s", seconds) for each in chosen]),
        ("requests within targets", [_with(each, "attainment_ratio", percent) for each in chosen]),
        ("engines busy", [percent(each["busy_ratio"]) for each in chosen]),
        ("weights on a GPU", [_gb(each, "weights") for each in chosen]),
        ("activations", [_gb(each, "activations") for each in chosen]),
        ("CUDA context, graphs, NCCL", [_gb(each, "context_and_graphs") for each in chosen]),
        ("KV cache", [_gb(each, "kv_cache") for each in chosen]),
        ("tokens of context in it", [count(each["kv_tokens"]) for each in chosen]),
    ]


def cost_text(choice: Mapping[str, Any]) -> str:
    """In money, or in GPU time where the card has no price."""
    if choice["usd_per_mtok"] is not None:
        return _with(choice, "usd_per_mtok", usd)
    return _with(choice, "gpu_h_per_mtok", lambda hours: f"{hours:.4g} GPU-h")


def verdict_line(document: Mapping[str, Any]) -> str:
    """One sentence."""
    cheapest = document["picks"]["cheapest"]
    if cheapest is None:
        closest = document["closest"]
        if closest is None:
            return "Nothing in that space can keep the targets: see what was ruled out."
        met = percent(closest["attainment_ratio"])
        return f"Nothing in that space keeps the targets: {closest['label']} comes nearest ({met})."
    sure = "" if document["search"]["certain"] else " of what was looked at"
    text = f"The cheapest{sure} that keeps the targets is {cheapest['label']}"
    return f"{text}, at {cost_text(cheapest)} per million output tokens."


def cheaper_line(document: Mapping[str, Any]) -> str | None:
    """What the cheapest has over those that cost less; None: there are none in reach."""
    cheaper = document["cheaper"]
    if cheaper is None:
        return None
    missed = cheaper["binding"]["limits"][0]["text"]
    return (
        f"Of what costs less, {cheaper['label']} comes nearest: {missed}, and "
        f"{percent(cheaper['attainment_ratio'])} of the requests are within the targets."
    )


def distinct_front(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The front, of set-ups with the same figures the first only."""
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for each in document["pareto"]:
        found.setdefault((each["ttft_s"], each["itl_s"], cost_text(each)), each)
    return list(found.values())


def search_line(document: Mapping[str, Any]) -> str:
    """What was done for it."""
    search = document["search"]
    rounds = ", ".join(
        f"{each['candidates']:,} on {each['share_ratio']:.0%} of the trace"
        for each in search["rounds"]
    )
    took = f"{search['wall_s']:.3g} s"
    return f"{search['candidates']:,} set-ups in {took}: {rounds or 'none was in reach'}."


def _out_line(each: Mapping[str, Any]) -> str:
    number, why = each.get("settings", each.get("candidates")), each.get("reason")
    what = f"impossible ({why})" if why is not None else f"out of reach ({each['limit']})"
    return f"{number:,} {what}, such as {each['example']}"


def _table(document: Mapping[str, Any], chosen: list[tuple[Mapping[str, Any], str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for _, names in chosen:
        table.add_column(names, justify="right", max_width=30)
    table.add_row("", *(safe_text(choice["label"]) for choice, _ in chosen))
    for name, cells in figure_rows(document, [choice for choice, _ in chosen]):
        table.add_row(name, *cells)
    return table


def _show_choice(console: Console, choice: Mapping[str, Any], names: str) -> None:
    console.print()
    console.print(Text(f"{names}: {safe_text(choice['label'])}", style="bold"))
    console.print(f"  bound by: {safe_text(choice['binding']['text'])}", markup=False)
    step = choice["binding"]["step"]
    console.print(
        f"  a step of {step['requests']} requests with {step['context_tokens']:,} tokens each: "
        f"{seconds(step['step_s'])}; {step['weight_gb']:.3g} GB of weights take "
        f"{seconds(step['weight_read_s'])} to read, {step['kv_gb']:.3g} GB of KV cache "
        f"{seconds(step['kv_read_s'])}",
        markup=False,
    )
    engine = choice["engine"]
    if engine["command"]:
        console.print(f"  {safe_text(engine['command'])}", markup=False, soft_wrap=True)
    for line in engine["besides"]:
        console.print(f"  besides: {safe_text(line)}", markup=False)


def _show_front(console: Console, document: Mapping[str, Any]) -> None:
    table = Table(title="Pareto front", title_justify="left", box=None, pad_edge=False)
    for name in ("", "TTFT", "ITL", "per million tokens"):
        table.add_column(name, justify="right" if name else "left")
    for each in distinct_front(document):
        table.add_row(
            safe_text(each["label"]),
            _cell(each["ttft_s"], seconds),
            _cell(each["itl_s"], seconds),
            cost_text(each).partition(" (")[0],
        )
    if document["pareto"]:
        console.print(table)
        console.print()


def _with(choice: Mapping[str, Any], key: str, text: Any) -> str:
    """A figure with its interval."""
    value, interval = choice[key], choice["interval"].get(key)
    if value is None:
        return "-"
    if interval is None:
        return str(text(value))
    low, high = interval
    return f"{text(value)} ({text(low)} to {text(high)})"


def _cell(value: float | None, text: Any) -> str:
    return "-" if value is None else str(text(value))


def _gb(choice: Mapping[str, Any], part: str) -> str:
    return f"{choice['memory_gb'][part]:.3g} GB"
