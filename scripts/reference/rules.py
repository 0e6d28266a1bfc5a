"""The pages of the doctor's rules: one for each, and their index."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.doctor.rule import Rule
from mileage.doctor.rule_page import rule_page

__all__ = ["file_name", "render", "render_index"]

_NOTE = "<!-- Written by `make docs` from the rule's function; change it there. -->"
_HEAD = f"""# Rules of the doctor

{_NOTE}

One page for each rule of `mileage doctor`: why its cause costs money, how it is told from its
neighbours, what to do, and three examples, which are also tests. `mileage explain RULE` shows the
same in a terminal. How rules compete is told in [How the doctor
decides](../explanation/diagnosis.md).

| Rule | Cause | What it is |
|---|---|---|
"""


def file_name(rule: Rule) -> str:
    """Of the rule's page."""
    return f"{rule.id.lower()}-{rule.name.replace('_', '-')}.md"


def render(rule: Rule) -> str:
    """The rule's page."""
    title, _, rest = rule_page(rule).partition("\n")
    return f"{title}\n\n{_NOTE}\n{rest}"


def render_index(rules: Iterable[Rule]) -> str:
    """The page that lists them all."""
    rows = (f"| [{r.id}]({file_name(r)}) | `{r.cause}` | {r.title} |\n" for r in rules)
    return _HEAD + "".join(rows)
