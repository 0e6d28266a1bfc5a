"""docs/reference/engine-plan.md out of the structs of `mileage engine config`."""

from __future__ import annotations

import re

from scripts.reference import configuration

from mileage.engines.configuration.plan import EnginePlan

__all__ = ["render"]

_INTRO = """\
# Engine plans

<!-- Written by `make docs` from the code; change the docstrings there. -->

`mileage engine config ENGINE PLAN` reads a TOML file (or a JSON one, `*.json`) of how an engine is
to be started, in no engine's own words. Every key but `model` may be left out, and is then left to
the engine; one that does not exist is an error that names it, its line, and the nearest ones. Each
is also `--set KEY=VALUE`, which wins over the file: `--set lora.slots=4`. A value is JSON, and text
where it is none; `--set KEY=null` takes a key away that has no default. How to use it:
[Generate an engine's configuration](../how-to/generate-engine-configuration.md).

"""


def _for_readers(meaning: str) -> str:
    """Without what is for programmers (the errors raised), and nothing twice."""
    sentences = re.split(r"(?<=\.)\s+", " ".join(meaning.split()))
    told = [each for each in sentences if not each.startswith("Raises ")]
    return " ".join(dict.fromkeys(told))


def render() -> str:
    """The page."""
    parts = [_INTRO]
    for section in configuration.sections(EnginePlan):
        title = f"`{section.header}`" if section.header else "Top level"
        lines = [f"## {title}", ""]
        if section.meaning:
            lines += [_for_readers(section.meaning), ""]
        lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
        lines += [f"| `{k.name}` | {k.type} | {k.default} | {k.meaning} |" for k in section.keys]
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)
