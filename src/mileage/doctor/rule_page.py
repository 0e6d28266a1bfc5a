"""The page of a rule in Markdown, with its three examples: for the docs and `mileage explain`."""

from __future__ import annotations

import json

from mileage.doctor.rule import Rule

__all__ = ["rule_page"]

EXAMPLES = (
    ("fires", "It is found in"),
    ("clear", "It is clear in"),
    ("silent", "Not enough evidence"),
)


def rule_page(rule: Rule) -> str:
    """The whole page."""
    parts = [
        f"# {rule.id}: {rule.title}",
        f"`{rule.name}`, cause `{rule.cause}`, since {rule.since}.",
        rule.page,
        "## Facts that decide it",
        ", ".join(f"`{key}`" for key in rule.needs) + ".",
    ]
    if rule.explains:
        parts += [
            "## What it brings about",
            ", ".join(f"`{cause}`" for cause in rule.explains)
            + ": found together with this, they are listed under it.",
        ]
    parts.append("## Examples")
    for name, said in EXAMPLES:
        parts.append(f"{said}:\n\n```json\n{json.dumps(getattr(rule, name), indent=2)}\n```")
    return "\n\n".join(parts) + "\n"
