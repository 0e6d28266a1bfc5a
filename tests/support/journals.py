"""Journals for tests: a header, one event and one action of every kind, and how to read files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mileage.control.journal import JournalHeader, columns
from mileage.control.journal_decoder import JournalRecord
from mileage.core.actions import (
    Action,
    AskBudget,
    Dispatch,
    Hold,
    Join,
    Load,
    Reject,
    ReturnBudget,
    SetLimit,
    WakeAt,
)
from mileage.core.events import (
    Arrived,
    BudgetGranted,
    BudgetRecalled,
    Cancelled,
    ConfigChanged,
    Event,
    ExperimentChanged,
    Failed,
    Finished,
    FirstToken,
    Loadable,
    LoadFailed,
    Observed,
    OthersSeen,
    ReplicaDown,
    ReplicaUp,
    ShareChanged,
    Woke,
)
from mileage.core.replica import Adapter, ReplicaView
from mileage.core.request import Request
from mileage.storage.journal_files import find_journals
from mileage.storage.journal_reader import JournalReader

__all__ = ["ACTIONS", "EVENTS", "header", "read_all", "request"]


def request(request_id: int, **fields: Any) -> Request:
    values: dict[str, Any] = {
        "tenant": "acme",
        "model": "llama",
        "endpoint": "chat",
        "stream": True,
        "arrived_s": 0.1 + request_id,
        "prompt_tokens_estimate": 100,
        **fields,
    }
    return Request(id=request_id, **values)


EVENTS: tuple[Event, ...] = (
    Arrived(request((1 << 62) + 7, prefix_key=2**64 - 1, priority="low", merge_key="k" * 64)),
    FirstToken(1),
    Finished(2, 100, None, 20, 0.1 + 0.2, 1e-300),
    Failed(3, "gpu-a", "broken", True),
    Cancelled(-4),
    Observed(ReplicaView(replica="gpu-a", observed_s=5.5, running=3, kv_cache_usage_ratio=1 / 3)),
    ReplicaUp("gpu-b", ("llama", "адаптер"), (Adapter("адаптер", "адаптер", "llama"),)),
    ReplicaDown("gpu-b", "health check"),
    Woke(),
    ConfigChanged(2, '{"governor":{"mode":"off"}}'),
    ShareChanged(0.5),
    BudgetGranted("acme usd", 480_000, 5, 3599.5),
    BudgetRecalled("acme usd", 480_000),
    ExperimentChanged('{"split":{"name":"one","ratio":0.5}}'),
    OthersSeen((("gpu-a", 2**40), ("gpu-b", 1))),
    Loadable("gpu-b", ("qwen", "адаптер")),
    LoadFailed("qwen", "no memory", 30.0),
)
ACTIONS: tuple[Action, ...] = (
    Dispatch(1, "gpu-a"),
    Hold(2),
    Join(3, 1, "same"),
    Reject(4, "deadline", 0.1 + 0.7, "its first token would come in 3 s"),
    SetLimit("gpu-a", 32, "target met"),
    WakeAt(12.625),
    AskBudget("acme usd", 480_000, 9),
    ReturnBudget("acme usd", 480_000, 1),
    Load("qwen"),
)


def header(**fields: Any) -> JournalHeader:
    values: dict[str, Any] = {
        "version": "0.0",
        "worker": 0,
        "run": 1,
        "part": 1,
        "began_at_utc_ns": 1_700_000_000_000_000_000,
        "began_s": 100.0,
        "replicas": ("gpu-a", "gpu-b"),
        "lacks": {"gpu-b": ("responses",)},
        "config": "{}",
        "seed": 2**64 - 1,
        "events": columns(Event),
        "actions": columns(Action),
        **fields,
    }
    return msgspec.convert(values, JournalHeader)


def read_all(directory: Path) -> list[tuple[JournalHeader, list[JournalRecord], str]]:
    """Every segment in the directory: its header, its records and how it ends."""
    found: list[tuple[JournalHeader, list[JournalRecord], str]] = []
    for files in find_journals([directory]):
        for file in files:
            with JournalReader(file.path) as reader:
                head = reader.header()
                assert head is not None
                records = list(reader.records())
                found.append((head, records, reader.ending))
    return found
