"""Traffic: the requests that a plan is made for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mileage.core.errors import ConfigError
from mileage.workload.columns import TraceColumns, columns_of
from mileage.workload.trace_request import TraceRequest

__all__ = ["Traffic"]


class Traffic:
    """A trace, or a part of one: its columns, and the adapter of each request where it has one.

    Raises ConfigError for one without requests.
    """

    def __init__(self, columns: TraceColumns, adapters: tuple[str | None, ...] = ()) -> None:
        if not len(columns):
            raise ConfigError("trace", None, "at least one request")
        self.columns, self._adapters = columns, adapters

    @classmethod
    def of(cls, requests: Iterable[TraceRequest]) -> Traffic:
        """Of these requests, in the order of arrival."""
        held = list(requests)
        adapters = tuple(each.adapter for each in held)
        return cls(columns_of(held), adapters if any(adapters) else ())

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.columns.arrived_s[-1] - self.columns.arrived_s[0])

    @cached_property
    def output_tokens(self) -> int:
        """Of all answers."""
        return int(self.columns.output_tokens.sum())

    @cached_property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that requests ask for, each once."""
        return tuple(sorted({name for name in self._adapters if name is not None}))

    @cached_property
    def uncached_tokens(self) -> NDArray[np.int64]:
        """Of each prompt, what no prefix cache can have: at least its last token."""
        columns = self.columns
        known = np.diff(columns.offsets) * columns.block_tokens
        tokens: NDArray[np.int64] = np.maximum(columns.prompt_tokens - known, 1)
        return tokens

    def part(self, start: int, stop: int) -> Traffic:
        """The requests from `start` to before `stop`, at their own times."""
        whole = self.columns
        if (start, stop) == (0, len(whole)):
            return self
        first, last = int(whole.offsets[start]), int(whole.offsets[stop])
        columns = TraceColumns(
            arrived_s=whole.arrived_s[start:stop],
            prompt_tokens=whole.prompt_tokens[start:stop],
            output_tokens=whole.output_tokens[start:stop],
            offsets=whole.offsets[start : stop + 1] - first,
            blocks=whole.blocks[first:last],
            block_tokens=whole.block_tokens[start:stop],
        )
        return Traffic(columns, self._adapters[start:stop])

    def requests(self, tuning: str = "none") -> Iterator[TraceRequest]:
        """One by one. `tuning`: none asks for no adapter, lora for those of the trace, full for a
        model in place of each."""
        columns = self.columns
        adapters = self._adapters or (None,) * len(self)
        for at, (arrived_s, prompt, output, block_tokens, adapter) in enumerate(
            zip(
                columns.arrived_s.tolist(),
                columns.prompt_tokens.tolist(),
                columns.output_tokens.tolist(),
                columns.block_tokens.tolist(),
                adapters,
                strict=True,
            )
        ):
            blocks = columns.blocks[columns.offsets[at] : columns.offsets[at + 1]]
            yield TraceRequest(
                arrived_s=arrived_s,
                prompt_tokens=prompt,
                output_tokens=output,
                prefix_blocks=tuple(blocks.tolist()),
                block_tokens=block_tokens,
                adapter=adapter if tuning == "lora" else None,
                model=(adapter or self.adapters[0]) if tuning == "full" else None,
            )
