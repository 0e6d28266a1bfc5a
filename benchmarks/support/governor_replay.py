"""Replay: what the gateways of this run journalled, decided once more by a fresh controller."""

from __future__ import annotations

from benchmarks.support.governed import replay
from benchmarks.support.governor_part import Part, Surroundings

__all__ = ["measure_replay"]


def measure_replay(around: Surroundings) -> Part:
    """Every journal of the parts before."""
    part = Part()
    replayed, records = 0, 0
    for journal in around.journals:
        found = replay(journal)
        name = journal.parent.name
        if found["exit_code"] != 0 or found.get("identical") is not True:
            part.failures.append(f"replay of {name}: {found.get('error') or found}")
            continue
        replayed += 1
        records += found["records"]
        around.output.say(f"replay: {name}: {found['records']} records, the same decisions")
    part.figures = {
        "journals": len(around.journals),
        "journals_identical": replayed,
        "journal_records": records,
    }
    if not around.journals:
        part.invalid.append("no part before wrote a journal")
    return part
