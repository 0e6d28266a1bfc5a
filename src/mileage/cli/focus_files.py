"""Files of FOCUS rows: CSV, and Parquet with exact decimals and times."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, BinaryIO, Final

from mileage.cli.csv_cell import csv_cell
from mileage.ledger.focus import FocusRow
from mileage.loadgen.run_rows import require_parquet

__all__ = ["COLUMNS", "write_focus_csv", "write_focus_parquet"]

COLUMNS: Final = FocusRow.__struct_fields__
_DECIMALS: Final = frozenset(
    {
        *("BilledCost", "ConsumedQuantity", "ContractedCost", "EffectiveCost", "ListCost"),
        "PricingQuantity",
    }
)
_TIMES: Final = frozenset(
    {"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"}
)
_WHOLE: Final = frozenset({"x_CachedTokens", "x_GpuNanoseconds", "x_Requests"})
_DIGITS: Final = (38, 18)
_CHUNK: Final = 10_000


def write_focus_csv(file: BinaryIO, rows: Sequence[FocusRow]) -> None:
    """A header and a line a row, in UTF-8; null is an empty field (RFC 4180)."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow(COLUMNS)
    for row in rows:
        table.writerow([_text(getattr(row, name)) for name in COLUMNS])
    text.flush()
    text.detach()


def write_focus_parquet(file: BinaryIO, rows: Sequence[FocusRow], *, key: str) -> None:
    """The same rows; money has 18 decimals, times are UTC. ConfigError, of `key`, without
    pyarrow."""
    arrow = require_parquet(key)
    kinds: dict[str, Any] = dict.fromkeys(COLUMNS, arrow.string())
    kinds |= dict.fromkeys(_DECIMALS, arrow.decimal128(*_DIGITS))
    kinds |= dict.fromkeys(_TIMES, arrow.timestamp("s", tz="UTC"))
    kinds |= dict.fromkeys(_WHOLE, arrow.int64())
    schema = arrow.schema(list(kinds.items()))
    least = Decimal(1).scaleb(-_DIGITS[1])
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for first in range(0, len(rows), _CHUNK):
            part = rows[first : first + _CHUNK]
            arrays = []
            for name, kind in kinds.items():
                values = [getattr(row, name) for row in part]
                if name in _DECIMALS:
                    values = [None if v is None else v.quantize(least) for v in values]
                elif name in _TIMES:
                    values = [dt.datetime.fromisoformat(value) for value in values]
                arrays.append(arrow.array(values, type=kind))
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def _text(value: Any) -> str:
    """Decimals without an exponent, which the specification allows and spreadsheets misread."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return csv_cell(value) if isinstance(value, str) else str(value)
