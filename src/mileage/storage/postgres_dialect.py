"""What differs between the ledger's SQL, which is SQLite's, and PostgreSQL's."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["postgres_schema", "postgres_sql"]

_TYPES: Final = {
    r"\bINTEGER\b": "BIGINT",
    r"\bREAL\b": "DOUBLE PRECISION",
    r"\bBLOB\b": "BYTEA",
    # Names are compared byte by byte, as SQLite does, whatever the database's locale.
    r"\bTEXT\b": 'TEXT COLLATE "C"',
    r"\)\s*WITHOUT ROWID\s*$": ")",
}
_INDEXED_BY: Final = re.compile(r"\s+INDEXED BY \w+")
_NUMBERED: Final = re.compile(r"\?(\d+)")
_EXTREME: Final = re.compile(r"\b(min|max)\(")
_SUBQUERY: Final = re.compile(r"\b(?:FROM|JOIN)\s*\((?=\s*(?:SELECT|WITH|VALUES)\b)")
_NAMED: Final = re.compile(r"\s+(?:AS\s+)?(?!WHERE\b|GROUP\b|ORDER\b|HAVING\b|LIMIT\b|UNION\b)\w")


@lru_cache(maxsize=64)
def postgres_schema(statement: str) -> str:
    """A statement of the migrations."""
    for pattern, text in _TYPES.items():
        statement = re.sub(pattern, text, statement)
    return statement


@lru_cache(maxsize=512)
def postgres_sql(statement: str) -> str:
    """A statement on rows, with psycopg's placeholders: `%s`, or `%(p1)s` for those with numbers.

    Statements use what both have; this is all that cannot be said in one way: hints, a comparison
    that knows NULL, the lesser of two values, names of subqueries (needed before PostgreSQL 16),
    placeholders. Their literals have no question marks and no parentheses.
    """
    statement = _INDEXED_BY.sub("", statement).replace("%", "%%")
    statement = statement.replace("AS INTEGER)", "AS BIGINT)")
    statement = _with_names(_with_extremes(statement))
    statement = re.sub(r"\bIS \?", "IS NOT DISTINCT FROM ?", statement)
    return _NUMBERED.sub(r"%(p\1)s", statement).replace("?", "%s")


def _with_extremes(statement: str) -> str:
    """`min` and `max` of several values are functions of other names."""
    names = {"min": "least", "max": "greatest"}
    place = 0
    while found := _EXTREME.search(statement, place):
        place = found.end()
        inside = statement[place : _closing(statement, place)]
        if _commas(inside):
            name = names[found[1]]
            statement = statement[: found.start()] + name + statement[place - 1 :]
            place = found.start() + len(name) + 1
    return statement


def _with_names(statement: str) -> str:
    """Each subquery that rows are taken from has a name."""
    place, count = 0, 0
    while found := _SUBQUERY.search(statement, place):
        place = found.end()
        end = _closing(statement, place) + 1
        if not _NAMED.match(statement, end):
            count += 1
            statement = f"{statement[:end]} AS part_{count}{statement[end:]}"
    return statement


def _closing(statement: str, place: int) -> int:
    """Where the parenthesis is closed that was opened just before."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(statement[place], 0)
        place += 1
    return place - 1


def _commas(inside: str) -> bool:
    """Whether there is a comma outside of parentheses."""
    depth = 0
    for character in inside:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            return True
    return False
