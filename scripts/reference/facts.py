"""The page of the vocabulary: every name that a facts document may hold."""

from __future__ import annotations

from collections.abc import Mapping

from mileage.doctor.fact_kind import Kind

__all__ = ["render"]

_HEAD = """# Facts

<!-- Written by `make docs` from the code; change it there. -->

A facts document is what `mileage doctor` reasons from: JSON with the sections below, and `logs` (a
list of raw lines) and `comparisons`. `mileage doctor --facts FILE` reads one, `--fact KEY=VALUE`
states a single fact. What is not known is left out: it is never 0. An unknown name is an error.

A number may be a bound: `{"min": 1}`, `{"max": 0.5}`, both ends included. A *signal* may also be a
list, with one value for each GPU, replica or process, or over time
`{"series": [{"t_s": 0, "value": 1}, ...]}`. `null` in `settings` says that a setting is known to be
not set, so that its default applies. Ratios are 0 to 1.

`comparisons` is a list of
`{"restarted_between_arms": true, "arms": [{"arm": "before", ...}, ...]}`: each arm holds what
differs from the rest of the document, in the same sections, and `"current": true` marks the one
that runs now. Signals that end in `_rel` stand in arms alone: ratios to the first arm.

On the command line names of `settings`, `workload` and `signals` need no section before them:
`--fact concurrency=256`, `--fact model.params_b=70`.
"""
_FORMS = {
    "number": "number",
    "signal": "signal",
    "numbers": "list of numbers",
    "flag": "true or false",
    "text": "text",
    "texts": "list of texts",
}


def render(sections: Mapping[str, Mapping[str, Kind]]) -> str:
    """The page."""
    parts = [_HEAD]
    for section, names in sections.items():
        parts.append(f"\n## {section}\n\n| Name | Value | Unit | Meaning |\n|---|---|---|---|\n")
        parts += (
            f"| `{name}` | {_form(kind)} | {kind.unit} | {kind.meaning} |\n"
            for name, kind in names.items()
        )
    return "".join(parts)


def _form(kind: Kind) -> str:
    if kind.form == "choice":
        return ", ".join(f"`{choice}`" for choice in kind.choices)
    return _FORMS[kind.form]
