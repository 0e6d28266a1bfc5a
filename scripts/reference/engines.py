"""The part of docs/reference/engines.md that is the table of capabilities; the rest is by hand."""

from __future__ import annotations

from collections.abc import Collection

from mileage.engines.capabilities import Capabilities

__all__ = ["render"]

_BEGIN = "<!-- Written by `make docs` from mileage/engines/capabilities.py: change it there. -->"
_END = "<!-- Until here. -->"


def render(page: str, capabilities: Collection[Capabilities]) -> str:
    """The page, with what is between its two marks made anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"engines.md lacks {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}\n\n{_tables(capabilities)}\n{_END}{after}"


def _tables(capabilities: Collection[Capabilities]) -> str:
    lines = ["| Engine | The governor limits it by | Why |", "|---|---|---|"]
    lines += [
        f"| {each.title} | {'its own limit and the gateway' if _own(each) else 'the gateway'}'s "
        f"| {each.why} |"
        for each in capabilities
    ]
    for each in capabilities:
        if not each.knobs:
            continue
        lines += ["", f"### {each.title}", ""]
        lines += ["| What | While it runs | At its start | |", "|---|---|---|---|"]
        lines += [
            f"| {knob.what} | {knob.live or 'no'} | {knob.start or '-'} | {knob.note} |"
            for knob in each.knobs
        ]
        lines += ["", f"Source: {'; '.join(each.sources)}."]
    return "\n".join([*lines, ""])


def _own(each: Capabilities) -> bool:
    return each.governed_by == "engine"
