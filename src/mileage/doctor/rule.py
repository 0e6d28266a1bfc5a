"""A rule: one function, its metadata, its page and its examples in one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import Any

import msgspec

from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.vocabulary import KEYS

__all__ = ["Rule", "rule"]

RULE_ID = re.compile(r"[A-Z]{2,6}[0-9]{3}")


class Rule(msgspec.Struct, frozen=True):
    """One cause and how it is told."""

    id: str
    name: str
    """The function's name: it states the problem."""
    cause: str
    """Label of the taxonomy, or the anti-pattern's own name."""
    since: str
    needs: tuple[str, ...]
    """Keys of facts that can decide it; `logs` and `comparisons` too."""
    explains: tuple[str, ...]
    """Causes that this one brings about: found together, they are listed under this one."""
    title: str
    page: str
    """Markdown of the function's docstring, without its first line."""
    fires: Mapping[str, Any]
    """A facts document that it finds something in."""
    clear: Mapping[str, Any]
    """A facts document that it clears."""
    silent: Mapping[str, Any]
    """A facts document near to it that does not tell."""
    check: Callable[[Evidence], Opinion]


def rule(
    id: str,
    *,
    cause: str,
    needs: tuple[str, ...],
    fires: Mapping[str, Any],
    clear: Mapping[str, Any],
    silent: Mapping[str, Any],
    explains: tuple[str, ...] = (),
    since: str = "0.1.0",
) -> Callable[[Callable[[Evidence], Opinion]], Rule]:
    """Make a function a `Rule`: its first line is the title, the rest of its docstring the page."""
    assert RULE_ID.fullmatch(id), id
    assert all(key in KEYS or key in ("logs", "comparisons") for key in needs), needs

    def made(check: Callable[[Evidence], Opinion]) -> Rule:
        title, _, rest = (check.__doc__ or "").partition("\n")
        page = dedent(rest)
        assert title, f"{id} has no title"
        assert page.strip(), f"{id} has no page"
        return Rule(
            id=id,
            name=check.__name__,
            cause=cause,
            since=since,
            needs=needs,
            explains=explains,
            title=title.strip(),
            page=page.strip(),
            fires=fires,
            clear=clear,
            silent=silent,
            check=check,
        )

    return made
