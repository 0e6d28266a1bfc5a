"""What `mileage engine graphs` reads: how many steps of an engine had how many rows."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import msgspec

from mileage.core.errors import ConfigError, TraceError
from mileage.ledger.step_record import STEP_LENGTH
from mileage.measure.exposition import Sample, parse
from mileage.measure.metrics_page import Page
from mileage.storage.step_file import read_steps
from mileage.wire.fetch import fetch
from mileage.wire.url import display_url

__all__ = ["GraphHistogram", "read_graph_histogram"]

_KEY: Final = "SOURCE"
_BUCKETS: Final = "vllm:iteration_tokens_total_bucket"
_TIMEOUT_S: Final = 10.0
_JSON: Final = b"{"
_STEP_ARRAYS: Final = frozenset(range(0x93, 0x96))
"""The first byte of an EngineStep's MessagePack: an array of 3 to 5."""
_ROWS_MAX: Final = 1 << 16
"""No step has more; one that says so counts as this."""
_EXPECTED: Final = (
    "step files of vLLM's plugin, a directory with them, a metrics page of vLLM, or a JSON object "
    "of sizes and how many steps had them"
)


class GraphHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """The steps, and how exactly they are known."""

    kind: Literal["steps", "metrics", "json"]
    steps: dict[int, float]
    note: str = ""
    """What the figures do not tell; empty for nothing."""


def read_graph_histogram(source: str, *, decode_only: bool = False) -> GraphHistogram:
    """Read the file, directory or URL. `decode_only`: of step files, without steps that computed
    prompt tokens.

    Raises ConfigError for what is none of what it may be, and FetchError for a URL that does not
    answer.
    """
    if source.startswith(("http://", "https://")):
        found = _of_page(_fetched(source), display_url(source))
    else:
        path = Path(source)
        try:
            found = _of_path(path, decode_only=decode_only)
        except OSError as error:
            raise ConfigError(_KEY, source, f"{_EXPECTED} ({error.strerror})") from None
    if decode_only and found.kind == "metrics":
        expected = "step files: vLLM's metrics do not tell steps with prompt tokens apart"
        raise ConfigError("--decode-only", source, expected)
    if not any(found.steps.values()):
        raise ConfigError(_KEY, source, f"{_EXPECTED}: there is no step in it")
    return found


def _of_path(path: Path, *, decode_only: bool) -> GraphHistogram:
    if path.is_dir():
        files = sorted(path.glob("*.steps"))
        if not files:
            raise ConfigError(_KEY, str(path), "a directory with files *.steps")
        return _of_steps(files, decode_only=decode_only)
    with path.open("rb") as file:
        head = file.read(STEP_LENGTH.size + 1)
    if path.suffix == ".steps" or (
        len(head) > STEP_LENGTH.size and head[STEP_LENGTH.size] in _STEP_ARRAYS
    ):
        return _of_steps([path], decode_only=decode_only)
    data = path.read_bytes()
    if data.lstrip().startswith(_JSON):
        return GraphHistogram(kind="json", steps=_of_json(data, str(path)))
    return _of_page(data, str(path))


def _of_steps(files: Iterable[Path], *, decode_only: bool) -> GraphHistogram:
    """Rows are all tokens of a step: vLLM pads a step with prompt tokens in it as well."""
    counts: Counter[int] = Counter()
    try:
        for file in files:
            for step in read_steps(file, key=_KEY):
                prefill = sum(use.prefill_tokens for use in step.uses)
                rows = prefill + sum(use.decode_tokens for use in step.uses)
                if rows > 0 and not (decode_only and prefill):
                    counts[min(rows, _ROWS_MAX)] += 1
    except TraceError as error:
        raise ConfigError(_KEY, error.path, f"{_EXPECTED} ({error})") from None
    return GraphHistogram(kind="steps", steps=dict(counts))


def _of_json(data: bytes, name: str) -> dict[int, float]:
    try:
        found = msgspec.json.decode(data, type=dict[int, float])
    except msgspec.DecodeError as error:
        expected = f'a JSON object of sizes and steps, such as {{"8": 1200}} ({error})'
        raise ConfigError(_KEY, name, expected) from None
    for rows, steps in found.items():
        if not 1 <= rows <= _ROWS_MAX:
            raise ConfigError(f"{_KEY} {name}", rows, f"a size of 1..{_ROWS_MAX}")
        if not 0 <= steps < math.inf:
            raise ConfigError(f'{_KEY} {name}: "{rows}"', steps, "a number of steps, 0 or more")
    return found


def _fetched(url: str) -> bytes:
    address = url if url.count("/") > 2 else f"{url}/metrics"
    answer = asyncio.run(fetch(address, timeout_s=_TIMEOUT_S))
    if answer.status != 200:
        raise ConfigError(_KEY, display_url(url), f"a metrics page: it answered {answer.status}")
    return answer.body


def _of_page(data: bytes, name: str) -> GraphHistogram:
    """Of vLLM's histogram; the ranks' are added. Where a step is within its bucket is not told:
    each number of rows in it is taken to be as frequent."""
    samples = Page(parse(data)).samples(_BUCKETS)
    if not samples:
        raise ConfigError(_KEY, name, f"{_EXPECTED}: no {_BUCKETS} in it")
    steps: dict[int, float] = {}
    for up_to, count in _bucket_counts(samples, name):
        for rows in up_to:
            steps[rows] = steps.get(rows, 0.0) + count / len(up_to)
    note = (
        "the metrics tell how many tokens steps had in wide ranges only, those of prompts "
        "included: within a range the steps are taken to be spread evenly"
    )
    return GraphHistogram(kind="metrics", steps=steps, note=note)


def _bucket_counts(samples: Iterable[Sample], name: str) -> list[tuple[range, float]]:
    totals: dict[float, float] = {0.0: 0.0}
    for sample in samples:
        try:
            bound = float(sample.labels.get("le", ""))
        except ValueError:
            bound = math.nan
        if sample.value is None or not bound > 0 or not 0 <= sample.value < math.inf:
            expected = "counts of steps, each with an upper bound le"
            raise ConfigError(_KEY, name, f"{_BUCKETS} with {expected}")
        totals[bound] = totals.get(bound, 0.0) + sample.value
    found = []
    for (low, before), (high, after) in pairwise(sorted(totals.items())):
        first = int(low) + 1
        last = first if math.isinf(high) else min(int(high), _ROWS_MAX)
        if after > before and last >= first:
            found.append((range(first, last + 1), after - before))
    return found
