"""Decision records are numbered without gaps, have the same sections, and stand in the index."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

ADR = ROOT / "docs" / "adr"
SECTIONS = ("## Context", "## Decision", "## Consequences")


def flaws(name: str, text: str, number: int) -> list[str]:
    """What is wrong with the record in file `name`, which should have this number."""
    found = []
    if not re.fullmatch(rf"{number:04}-[a-z0-9]+(-[a-z0-9]+)*\.md", name):
        found.append(f"{name}: expected {number:04}-title.md")
    if not text.startswith(f"# {number:04}: "):
        found.append(f"{name}: the title is not '# {number:04}: ...'")
    if not re.search(r"^Status: (proposed|accepted|superseded by \d{4})$", text, re.MULTILINE):
        found.append(f"{name}: no line 'Status: accepted' (or proposed, superseded by NNNN)")
    places = [text.find(f"\n{section}\n") for section in SECTIONS]
    if -1 in places or places != sorted(places):
        found.append(f"{name}: sections are not {', '.join(SECTIONS)}")
    return found


def test_records_are_numbered_and_complete() -> None:
    records = sorted(p for p in ADR.glob("*.md") if p.name != "README.md")
    assert records
    assert [
        flaw
        for number, record in enumerate(records, 1)
        for flaw in flaws(record.name, record.read_text("utf-8"), number)
    ] == []


def test_the_index_lists_every_record() -> None:
    index = (ADR / "README.md").read_text("utf-8")
    records = {p.name for p in ADR.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\((\d{4}-[^)]+)\)", index)) == records


def test_a_flawed_record_is_found() -> None:
    good = "# 0002: T\n\nStatus: accepted\n\n## Context\n\n## Decision\n\n## Consequences\n"
    assert flaws("0002-t.md", good, 2) == []
    assert len(flaws("0003-t.md", good, 3)) == 1
    assert len(flaws("0002-t.md", good.replace("accepted", "perhaps"), 2)) == 1
    assert len(flaws("0002-t.md", good.replace("## Decision\n", ""), 2)) == 1
    assert len(flaws("Two.md", good, 2)) == 1
