"""Reads Mooncake traces: a JSON object a line with timestamp, lengths and hash_ids.

Format: github.com/kvcache-ai/Mooncake, FAST25-release/README.md. `timestamp` is in milliseconds,
and `hash_ids` are the remapped hashes of the prompt's blocks of 512 tokens, each of them standing
for all of the prompt up to the end of its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from mileage.core.errors import TraceError
from mileage.workload.json_line import decode_line
from mileage.workload.ordering import Row
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.trace_check import ARRIVED_MAX_S, TOKENS_MAX
from mileage.workload.trace_request import TraceRequest

__all__ = ["mooncake_rows"]


_Id = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Line(msgspec.Struct, gc=False):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[_Id, ...] = ()


_decoder = msgspec.json.Decoder(_Line)


def mooncake_rows(
    lines: Iterable[bytes], path: str, options: ReadOptions, tally: ReadTally
) -> Iterator[Row]:
    """Each record as a request; times are the trace's own. Raises TraceError."""
    block_tokens = options.block_tokens
    for number, text in enumerate(lines, 1):
        if text.isspace() or not text:
            continue
        try:
            line = decode_line(_decoder, text, path, number)
            prompt, output, blocks = line.input_length, line.output_length, line.hash_ids
            arrived_s = line.timestamp / 1000.0
            if not (
                0.0 <= arrived_s <= ARRIVED_MAX_S
                and 0 <= prompt <= TOKENS_MAX
                and 0 <= output <= TOKENS_MAX
                and len(blocks) <= -(-prompt // block_tokens)
            ):
                raise TraceError(path, number, _fault(line, block_tokens))
        except TraceError as error:
            tally.forgive(error)
            continue
        tally.records += 1
        if not (prompt and output):
            tally.failed += 1
            if not options.keep_failed:
                continue
        request = TraceRequest(
            arrived_s=arrived_s,
            prompt_tokens=prompt or 1,
            output_tokens=output or 1,
            prefix_blocks=blocks,
            block_tokens=block_tokens if blocks else 0,
        )
        yield arrived_s, number, request


def _fault(line: _Line, block_tokens: int) -> str:
    if not 0.0 <= line.timestamp / 1000.0 <= ARRIVED_MAX_S:
        return (
            f"timestamp: got {line.timestamp!r}, expected milliseconds since the start, 0 or more"
        )
    for name in ("input_length", "output_length"):
        tokens = getattr(line, name)
        if not 0 <= tokens <= TOKENS_MAX:
            return f"{name}: got {tokens}, expected tokens, 0..{TOKENS_MAX}"
    most = -(-line.input_length // block_tokens)
    return (
        f"hash_ids: got {len(line.hash_ids)}, expected at most {most}, one for each"
        f" {block_tokens} tokens of input_length {line.input_length}"
    )
