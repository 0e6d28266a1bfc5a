"""Traces for tests: lines in each format, and what is read of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from mileage.cli.trace_catalogue import DataSet
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.source import read_trace
from mileage.workload.trace_request import TraceRequest

__all__ = [
    "AZURE",
    "AZURE_FILE",
    "BURSTGPT",
    "CLIENT_DATASET",
    "CLIENT_TRACE",
    "MOONCAKE",
    "PINNED",
    "read",
]

AZURE = [
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r",
    b"2023-11-16 18:15:59.6805900,374,44\r",
    b"2023-11-16 18:16:00.0000001,396,109\r",
    b"2023-11-16 18:17:01.5000000,879,55\r",
]
MOONCAKE = [
    b'{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]}',
    b'{"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [0, 3]}',
    b'{"timestamp": 2999, "input_length": 512, "output_length": 1, "hash_ids": [0]}',
]
BURSTGPT = [
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    b"5,ChatGPT,472,18,490,Conversation log",
    b"45,ChatGPT,1087,0,1087,Conversation log",
    b"118,GPT-4,417,276,693,API log",
]
CLIENT_TRACE = b"""0,2.0,1.0,Gamma,1.0,0.5
600,0,0,,0,0
1200,0.5,4.0,Weibull,0.4,0.6"""
CLIENT_DATASET = {
    "0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{5: 1.0}"},
    "1200": {"input_tokens": "{700: 1.0}", "output_tokens": "{8: 1.0}"},
}
"""The two files of a ServeGen client."""
AZURE_FILE = b"\n".join(AZURE) + b"\n"
PINNED = DataSet(
    url="https://example.org/data/trace.csv",
    licence="CC-BY-4.0",
    about="a trace",
    size_bytes=len(AZURE_FILE),
    sha256=hashlib.sha256(AZURE_FILE).hexdigest(),
)
"""AZURE_FILE as an entry of the catalogue."""


def read(
    lines: Sequence[bytes], *, tally: ReadTally | None = None, **options: Any
) -> list[TraceRequest]:
    """All requests of the lines."""
    return list(read_trace(lines, path="t", options=ReadOptions(**options), tally=tally))
