"""The governor: goodput under overload, all policies, jitter, shares, budgets, merging, replay.

`make bench-governor`, or `python -m benchmarks.governor [--json] [--quick] [--parts A,C]`. See
docs/reference/benchmarks.md for what each part measures and how. Exit code: 0 all bars met, 1 a bar
missed or a wrong answer, 3 no verdict.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.support.foreign import ForeignWatch
from benchmarks.support.governor_embedded import measure_embedded
from benchmarks.support.governor_jitter import measure_jitter
from benchmarks.support.governor_merging import measure_merging
from benchmarks.support.governor_part import Part, Surroundings
from benchmarks.support.governor_policies import measure_policies
from benchmarks.support.governor_replay import measure_replay
from benchmarks.support.governor_tenants import measure_budget, measure_shares
from benchmarks.support.machine import describe, pinned, raise_file_limit
from benchmarks.support.output import Output, scratch_directory
from benchmarks.support.processes import NotReadyError, exit_on_signals
from benchmarks.support.verdict import FAILED, NO_VERDICT, PASSED, Bar, Verdict, verdict
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class _Chapter:
    """One part of the run; `watched`: its bars depend on a quiet machine."""

    name: str
    measure: Callable[[Surroundings], Part]
    watched: bool = True


CHAPTERS = {
    "A": _Chapter("embedded engine", measure_embedded),
    "B": _Chapter("policies", measure_policies),
    "C": _Chapter("jitter", measure_jitter),
    "D": _Chapter("shares", measure_shares),
    "E": _Chapter("budget", measure_budget, watched=False),
    "F": _Chapter("merging", measure_merging),
    "G": _Chapter("replay", measure_replay, watched=False),
}
_WORDS = {PASSED: "passed", FAILED: "failed", NO_VERDICT: "no verdict"}


class Bench:
    """One run: its parts one after the other, and what came out of them together."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.figures: dict[str, object] = {}
        self.words: dict[str, str] = {}
        self._whole = Part()
        self._bars: list[Bar] = []

    def run(self, letter: str) -> None:
        """Measure one part; one that cannot be measured leaves the others alone."""
        chapter = CHAPTERS[letter]
        self._around.output.say(f"part {letter}: {chapter.name}")
        started_s, watch = time.monotonic(), ForeignWatch()
        try:
            part = chapter.measure(self._around)
        except NotReadyError as error:
            part = Part(invalid=[f"{chapter.name}: {error}"])
        if chapter.watched:
            part.doubts += watch.doubts(chapter.name)
        judged = _judge(part.figures, part.bars, part)
        self.words[letter] = _WORDS[judged.exit_code]
        took_s = time.monotonic() - started_s
        self._around.output.say(f"part {letter}: {self.words[letter]}, {took_s:.0f} s")
        for reason in judged.reasons:
            self._around.output.say(f"  {reason}")
        self.figures |= part.figures
        self._bars += part.bars
        for name in ("failures", "invalid", "doubts"):
            getattr(self._whole, name).extend(getattr(part, name))

    def verdict(self) -> Verdict:
        """Of all parts that ran."""
        return _judge(self.figures, self._bars, self._whole)


def _judge(figures: dict[str, object], bars: Sequence[Bar], part: Part) -> Verdict:
    return verdict(figures, bars, failures=part.failures, invalid=part.invalid, doubts=part.doubts)


def _letters(text: str) -> list[str]:
    letters = [letter.strip().upper() for letter in text.split(",")]
    unknown = [letter for letter in letters if letter not in CHAPTERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"parts are {', '.join(CHAPTERS)}, not {unknown[0]!r}")
    return [letter for letter in CHAPTERS if letter in letters]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.governor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="see that everything runs")
    parser.add_argument("--parts", type=_letters, default=list(CHAPTERS), help="such as A,C")
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    exit_on_signals()
    raise_file_limit(16_384)
    if not {GATEWAY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        return output.finish({}, Verdict(NO_VERDICT, ("needs the cores 0 and 1",)))
    started_s = time.monotonic()
    with scratch_directory() as directory, pinned(LOAD_CORE):
        bench = Bench(Surroundings(directory, output, quick=arguments.quick))
        for letter in arguments.parts:
            bench.run(letter)
    figures = {
        **bench.figures,
        "parts": bench.words,
        "quick": arguments.quick,
        "seconds": round(time.monotonic() - started_s),
        "machine": describe(),
    }
    return output.finish(figures, bench.verdict())


if __name__ == "__main__":
    sys.exit(main())
