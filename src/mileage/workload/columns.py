"""TraceColumns: a whole trace as arrays, for code that is compiled or works on all of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mileage.core.errors import TraceError
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.readers.azure import azure_figures
from mileage.workload.timestamps import TICKS_PER_S
from mileage.workload.trace_request import TraceRequest

__all__ = ["TraceColumns", "azure_columns", "columns_of"]

_Floats: TypeAlias = NDArray[np.float64]
_Ints: TypeAlias = NDArray[np.int64]


class TraceColumns:
    """One entry a request, by arrival: 24 bytes each, and 8 for each prefix block.

    `blocks[offsets[i] : offsets[i + 1]]` are the prefix blocks of request i, `block_tokens[i]`
    their size.
    """

    __slots__ = (
        "arrived_s", "block_tokens", "blocks", "offsets", "output_tokens", "prompt_tokens",
    )  # fmt: skip

    def __init__(
        self,
        *,
        arrived_s: _Floats,
        prompt_tokens: _Ints,
        output_tokens: _Ints,
        offsets: _Ints,
        blocks: _Ints,
        block_tokens: _Ints,
    ) -> None:
        self.arrived_s, self.prompt_tokens = arrived_s, prompt_tokens
        self.output_tokens = output_tokens
        self.offsets, self.blocks, self.block_tokens = offsets, blocks, block_tokens

    def __len__(self) -> int:
        return len(self.arrived_s)


def columns_of(requests: Iterable[TraceRequest]) -> TraceColumns:
    """The requests, which must be in the order of arrival, as columns."""
    arrived_s, prompt, output = array("d"), array("q"), array("q")
    offsets, blocks, block_tokens = array("q", [0]), array("q"), array("q")
    for request in requests:
        arrived_s.append(request.arrived_s)
        prompt.append(request.prompt_tokens)
        output.append(request.output_tokens)
        if request.prefix_blocks:
            blocks.extend(request.prefix_blocks)
        offsets.append(len(blocks))
        block_tokens.append(request.block_tokens)
    return TraceColumns(
        arrived_s=np.array(arrived_s, np.float64),
        prompt_tokens=np.array(prompt, np.int64),
        output_tokens=np.array(output, np.int64),
        offsets=np.array(offsets, np.int64),
        blocks=np.array(blocks, np.int64),
        block_tokens=np.array(block_tokens, np.int64),
    )


def azure_columns(
    lines: Iterable[bytes],
    *,
    path: str,
    options: ReadOptions | None = None,
    tally: ReadTally | None = None,
) -> TraceColumns:
    """An Azure trace as columns, without a request object for each: about 1 us a record.

    What `columns_of(read_trace(...))` gives, except that records may be in any order, and that
    times are not rounded twice where the earliest record is not the first. Raises TraceError.
    """
    options, tally = options or ReadOptions(), tally if tally is not None else ReadTally()
    tally.format = "azure"
    ticks_seen, prompts, outputs = array("q"), array("q"), array("q")
    tally.expect_bad(options.bad_max)
    for _, ticks, prompt, output in azure_figures(lines, path, tally.forgive):
        tally.records += 1
        if not (prompt and output):
            tally.failed += 1
            if not options.keep_failed:
                continue
        ticks_seen.append(ticks)
        prompts.append(prompt or 1)
        outputs.append(output or 1)
    if not tally.records:
        raise TraceError(path, 1, "has no record below its header")
    all_ticks = np.array(ticks_seen, np.int64)
    prompt_tokens, output_tokens = np.array(prompts, np.int64), np.array(outputs, np.int64)
    behind = int(np.count_nonzero(np.diff(all_ticks) < 0))
    if behind:
        tally.reordered += behind
        order = np.argsort(all_ticks, kind="stable")
        all_ticks, prompt_tokens = all_ticks[order], prompt_tokens[order]
        output_tokens = output_tokens[order]
    count = len(all_ticks)
    none = np.zeros(count + 1, np.int64)
    return TraceColumns(
        arrived_s=(all_ticks - all_ticks[:1].sum()) / TICKS_PER_S,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        offsets=none,
        blocks=np.zeros(0, np.int64),
        block_tokens=none[1:],
    )
