"""ReadOptions: how a trace is to be read, and ReadTally: what was found in it."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError, TraceError

__all__ = ["ReadOptions", "ReadTally", "Spread", "TimeUnit", "TraceFormat"]

TraceFormat = Literal["azure", "burstgpt", "csv", "mileage-csv", "mileage-jsonl", "mooncake"]
"""csv: any table whose columns have known names, or names that `columns` gives."""
TimeUnit = Literal["s", "ms", "us", "ns"]
Spread = Literal["none", "even", "random"]

_REORDER_MAX: Final = 1_000_000
_BAD_MAX: Final = 1_000_000_000
_BAD_NAMED_MAX: Final = 8
_SPREAD_MAX_S: Final = 3.0


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read a trace. Raises ConfigError for values that cannot be."""

    format: TraceFormat | None = None
    """None: told from the first line."""
    columns: dict[str, str] = {}
    """Of a `csv`: the column that holds a field of TraceRequest, by the field's name."""
    time_unit: TimeUnit | None = None
    """Of numbers in a time column. None: as the column's name ends (`_ms`), else seconds."""
    keep_failed: bool = False
    """Requests that generated nothing count as requests of one token; else they are left out."""
    block_tokens: int = 512
    """Tokens that one of a Mooncake trace's `hash_ids` stands for."""
    spread: Spread = "none"
    """Arrivals with one and the same timestamp: at that moment, or over the time until the next
    timestamp, in equal parts or (by `seed`) at random."""
    spread_max_s: float = _SPREAD_MAX_S
    """The longest time that they are spread over: how coarse the clock of the trace is."""
    seed: int = 0
    reorder_places: int = 4096
    """Records may stand so many places too late; one that is later still is an error."""
    bad_max: int = 0
    """So many records may be broken: they are left out, counted and named (see ReadTally); one more
    is an error. A trace without a first line or header is one in any case."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in get_args(TraceFormat):
            raise ConfigError("format", self.format, f"one of {', '.join(get_args(TraceFormat))}")
        if self.spread not in get_args(Spread):
            raise ConfigError("spread", self.spread, f"one of {', '.join(get_args(Spread))}")
        if self.time_unit is not None and self.time_unit not in get_args(TimeUnit):
            raise ConfigError(
                "time_unit", self.time_unit, f"one of {', '.join(get_args(TimeUnit))}"
            )
        require_at_least("block_tokens", self.block_tokens, 1)
        require_range("spread_max_s", self.spread_max_s, 0.0, 86_400.0)
        if self.spread == "none" and self.spread_max_s != _SPREAD_MAX_S:
            raise ConfigError("spread_max_s", self.spread_max_s, "spread to be even or random")
        require_range("reorder_places", self.reorder_places, 1, _REORDER_MAX)
        require_range("bad_max", self.bad_max, 0, _BAD_MAX)


class ReadTally:
    """Counts of one reading, complete when it is over."""

    __slots__ = ("_bad_max", "bad", "bad_named", "failed", "format", "records", "reordered")

    def __init__(self) -> None:
        self._bad_max = 0
        self.bad = 0
        """Records that are broken and were left out; none of `records`."""
        self.bad_named: list[str] = []
        """What is wrong with the first few of them, with file and line."""
        self.format: str | None = None
        """What was read; None before the first record."""
        self.records = 0
        """Records of the trace, whole and valid ones."""
        self.failed = 0
        """Those of them that generated nothing."""
        self.reordered = 0
        """Those that stood behind a later one."""

    def expect_bad(self, bad_max: int) -> None:
        """So many records may be broken."""
        self._bad_max = bad_max

    def forgive(self, error: TraceError) -> None:
        """Count a record that is broken; raises the error where that is one too many."""
        if self.bad >= self._bad_max:
            raise error
        self.bad += 1
        if len(self.bad_named) < _BAD_NAMED_MAX:
            self.bad_named.append(str(error))
