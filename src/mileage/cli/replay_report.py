"""What `mileage replay` tells: one document, or tables for people."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.control.journal_decoder import JournalRecord
from mileage.control.replay import Difference, FailedOpen
from mileage.control.tally import TallySummary
from mileage.control.what_if import WhatIfResult
from mileage.core.actions import Action, Dispatch, Hold, Join, Load, Reject, SetLimit, WakeAt
from mileage.core.events import Arrived, Event, Observed

__all__ = [
    "Damage",
    "Decision",
    "ReplayReport",
    "WhatIfReport",
    "WorkerReplay",
    "WorkerWhatIf",
    "document",
    "show_replay",
    "show_what_if",
]

_ENDINGS = {
    "rotated": "whole",
    "stopped": "stopped in order",
    "live": "being written",
    "early": "ends early (killed, or not writable)",
    None: "damaged",
}


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A file that cannot be read to its end; 0: its header."""

    path: str
    record: int
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One record for people."""

    worker: int
    at_utc_ns: int
    record: JournalRecord


class WorkerReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's journal. `restored`: times that a controller was made out of a snapshot, or
    new; `ending`: how the last file ends."""

    directory: str
    segments: int
    records: int
    restored: int
    ending: str | None
    versions: list[str]
    events: dict[str, int]
    actions: dict[str, int]
    difference: Difference | None
    failed_open: list[FailedOpen]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole replay; `version` is that of the program that replayed."""

    identical: bool
    records: int
    version: str
    workers: list[WorkerReplay]
    damages: list[Damage]
    decisions: list[Decision]


class WorkerWhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's estimate."""

    directory: str
    result: WhatIfResult


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole estimate."""

    records: int
    workers: list[WorkerWhatIf]
    damages: list[Damage]


def document(report: ReplayReport | WhatIfReport) -> str:
    """The report as JSON."""
    return msgspec.json.encode(report).decode()


def show_replay(report: ReplayReport) -> None:
    """The report as tables."""
    console = wide_console()
    if report.decisions:
        console.print(_decisions_table(report.decisions))
        console.print()
    if report.workers:
        console.print(_workers_table(report.workers))
        console.print(_counts_table(report.workers))
    for worker in report.workers:
        for failure in worker.failed_open:
            where = f"{failure.source}, record {failure.record}"
            console.print(safe_text(f"the controller failed open: {where}: {failure.failure}"))
        if worker.difference is not None:
            _show_difference(console, report, worker, worker.difference)
    _show_damages(console, report.damages)
    if report.records and report.identical:
        console.print(f"identical: {report.records} records gave the same actions again")


def show_what_if(report: WhatIfReport) -> None:
    """The estimate beside what happened."""
    console = wide_console()
    for worker in report.workers:
        console.print(_what_if_table(worker))
        limits = _limits_table(worker.result)
        if limits.row_count:
            console.print(limits)
        if worker.result.assumed:
            console.print(
                f"{worker.result.assumed} requests were sent in the estimate only: no answer to "
                "them is known, a mean one was assumed"
            )
    _show_damages(console, report.damages)
    if report.workers:
        console.print(
            "An estimate: engines answer each request after as long as they did, whatever else "
            "they have to do."
        )


def _show_damages(console: Console, damages: Sequence[Damage]) -> None:
    for damage in damages:
        console.print(safe_text(f"damaged: {damage.path}: {damage.message}"), soft_wrap=True)


def _show_difference(
    console: Console, report: ReplayReport, worker: WorkerReplay, difference: Difference
) -> None:
    record = difference.record
    console.print(
        safe_text(f"different: {difference.source}, record {record.number}, at {record.now_s!r} s"),
        soft_wrap=True,
    )
    for name, text in (
        ("event", repr(record.event)),
        ("recorded", record.error or _actions_repr(record.actions)),
        ("replayed", difference.error or _actions_repr(difference.actions)),
    ):
        console.print(safe_text(f"  {name:9} {text}"), soft_wrap=True)
    others = [version for version in worker.versions if version != report.version]
    if others:
        console.print(
            f"  The journal was written by version {', '.join(others)}, this is {report.version}: "
            "a change of a policy is a difference."
        )


def _actions_repr(actions: Sequence[Action]) -> str:
    return "; ".join(map(repr, actions)) or "nothing"


def _workers_table(workers: Sequence[WorkerReplay]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("journal")
    for name in ("files", "records", "restored"):
        table.add_column(name, justify="right")
    table.add_column("last file")
    table.add_column("replay")
    for worker in workers:
        same = "identical" if worker.difference is None else "different"
        numbers = (str(worker.segments), str(worker.records), str(worker.restored))
        table.add_row(
            safe_text(worker.directory), *numbers, _ENDINGS.get(worker.ending, "damaged"), same
        )
    return table


def _counts_table(workers: Sequence[WorkerReplay]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("events")
    table.add_column("", justify="right")
    table.add_column("actions")
    table.add_column("", justify="right")
    events, actions = Counter[str](), Counter[str]()
    for worker in workers:
        events.update(worker.events)
        actions.update(worker.actions)
    left, right = sorted(events.items()), sorted(actions.items())
    for place in range(max(len(left), len(right))):
        cells: list[str] = []
        for side in (left, right):
            cells += (side[place][0], str(side[place][1])) if place < len(side) else ("", "")
        table.add_row(*map(safe_text, cells))
    return table


def _decisions_table(decisions: Sequence[Decision]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("time (UTC)", "worker", "event", "decision"):
        table.add_column(name)
    for decision in decisions:
        record = decision.record
        done = record.error or "; ".join(_action_text(action) for action in record.actions)
        cells = (_utc(decision.at_utc_ns), str(decision.worker), _event_text(record.event), done)
        table.add_row(*map(safe_text, cells))
    return table


def _id(request_id: int) -> str:
    """As clients see it in `x-request-id`."""
    return f"req-{request_id:x}"


def _event_text(event: Event) -> str:
    if isinstance(event, Arrived):
        r = event.request
        what = f"{r.tenant} {r.model} {r.endpoint} {r.prompt_tokens_estimate} tokens"
        return f"arrived {_id(r.id)} {what}"
    if isinstance(event, Observed):
        return f"observed {event.view.replica}"
    name = str(type(event).__struct_config__.tag)
    request_id = getattr(event, "request_id", None)
    subject = getattr(event, "replica", "") if request_id is None else _id(request_id)
    return f"{name} {subject}".strip()


def _action_text(action: Action) -> str:
    if isinstance(action, Dispatch):
        return f"{_id(action.request_id)} -> {action.replica}"
    if isinstance(action, Hold):
        return f"hold {_id(action.request_id)}"
    if isinstance(action, Join):
        return f"{_id(action.request_id)} joins {_id(action.leader_id)} ({action.kind})"
    if isinstance(action, Reject):
        detail = f": {action.detail}" if action.detail else ""
        return f"refuse {_id(action.request_id)} ({action.reason}{detail})"
    if isinstance(action, SetLimit):
        return f"limit of {action.replica}: {action.limit} ({action.reason})"
    if isinstance(action, Load):
        return f"load {action.model}"
    if isinstance(action, WakeAt):
        return f"wake at {action.at_s:.3f} s"
    return repr(action)


def _what_if_table(worker: WorkerWhatIf) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(safe_text(worker.directory))
    table.add_column("recorded", justify="right")
    table.add_column("estimated", justify="right")
    recorded, estimated = worker.result.recorded, worker.result.estimated
    for name, field, unit in (
        ("requests", "arrived", ""),
        ("sent to a replica", "sent", ""),
        ("held", "held", ""),
        ("joined another", "joined", ""),
        ("held at the end", "waiting", ""),
        ("wait of those held and sent, p50", "wait_p50_s", " s"),
        ("wait of those held and sent, p99", "wait_p99_s", " s"),
        ("wait of those held and sent, longest", "wait_max_s", " s"),
    ):
        table.add_row(name, _cell(recorded, field, unit), _cell(estimated, field, unit))
    for reason in sorted({*recorded.rejected, *estimated.rejected}):
        before, after = recorded.rejected.get(reason, 0), estimated.rejected.get(reason, 0)
        table.add_row(f"refused: {reason}", str(before), str(after))
    return table


def _cell(summary: TallySummary, field: str, unit: str) -> str:
    value: Any = getattr(summary, field)
    if value is None:
        return ""
    return f"{value:.3f}{unit}" if unit else str(value)


def _limits_table(result: WhatIfResult) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("limit of")
    table.add_column("")
    for name in ("first", "last", "lowest", "highest", "mean", "changes"):
        table.add_column(name, justify="right")
    for label, summary in (("recorded", result.recorded), ("estimated", result.estimated)):
        for replica, limit in summary.limits.items():
            numbers = (limit.first, limit.last, limit.low, limit.high)
            table.add_row(
                safe_text(replica),
                label,
                *map(str, numbers),
                f"{limit.mean:.1f}",
                str(limit.changes),
            )
    return table


def _utc(utc_ns: int) -> str:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        moment = epoch + dt.timedelta(microseconds=utc_ns // 1000)
    except OverflowError:
        return str(utc_ns)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
