"""Output of a benchmark: what is read by people goes to stderr, the JSON to stdout, last."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.support.verdict import FAILED, NO_VERDICT, PASSED, Verdict

__all__ = ["Output", "scratch_directory"]

_WORDS = {PASSED: "passed", FAILED: "FAILED", NO_VERDICT: "no verdict"}


class Output:
    """Progress and tables on stderr, none with `quiet`; one JSON object on stdout."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        if not self._console.is_terminal:
            self._console.width = 120

    def say(self, text: str) -> None:
        """One line of progress."""
        self._console.print(text, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers are aligned right, None is shown as a dash."""
        table = Table(title=title, title_justify="left")
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)

    def finish(self, figures: Mapping[str, object], result: Verdict) -> int:
        """Print the verdict and the JSON object; gives the exit code."""
        word = _WORDS[result.exit_code]
        self.say(f"{word}" + "".join(f"\n  {reason}" for reason in result.reasons))
        document = {**figures, "verdict": word.lower(), "reasons": list(result.reasons)}
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
        return result.exit_code


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory of its own, removed at the end; kept if MILEAGE_BENCH_KEEP is set."""
    directory = Path(tempfile.mkdtemp(prefix="mileage-bench-"))
    try:
        yield directory
    finally:
        if not os.environ.get("MILEAGE_BENCH_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
