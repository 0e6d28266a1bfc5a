"""The ledger's SQL as PostgreSQL is told it."""

from __future__ import annotations

import pytest

from mileage.storage.postgres_dialect import postgres_schema, postgres_sql


@pytest.mark.parametrize(
    ("sqlite", "postgres"),
    [
        pytest.param(
            "SELECT a FROM r WHERE b = ? AND c LIKE 'x%'",
            "SELECT a FROM r WHERE b = %s AND c LIKE 'x%%'",
            id="placeholders, and signs that look like them",
        ),
        pytest.param(
            "SELECT ?1, ?2, ?1", "SELECT %(p1)s, %(p2)s, %(p1)s", id="placeholders with numbers"
        ),
        pytest.param(
            "SELECT a FROM r INDEXED BY r_by_a WHERE b IS ? AND c IS NULL",
            "SELECT a FROM r WHERE b IS NOT DISTINCT FROM %s AND c IS NULL",
            id="no hints, and a comparison that knows NULL",
        ),
        pytest.param(
            "SELECT min(max(a), max(b, f(c, d))), min(a)",
            "SELECT least(max(a), greatest(b, f(c, d))), min(a)",
            id="the lesser of several is not the least of a column",
        ),
        pytest.param(
            "SELECT * FROM (SELECT 1 FROM (SELECT 2)) WHERE x IN (SELECT 3)",
            "SELECT * FROM (SELECT 1 FROM (SELECT 2) AS part_2) AS part_1 WHERE x IN (SELECT 3)",
            id="subqueries have names, those of a comparison need none",
        ),
        pytest.param(
            "SELECT * FROM (SELECT 1) AS n JOIN (SELECT 2) m GROUP BY CAST(5 AS INTEGER)",
            "SELECT * FROM (SELECT 1) AS n JOIN (SELECT 2) m GROUP BY CAST(5 AS BIGINT)",
            id="names that are there stay",
        ),
    ],
)
def test_statements(sqlite: str, postgres: str) -> None:
    assert postgres_sql(sqlite) == postgres


def test_tables_have_types_as_wide_and_names_compared_by_bytes() -> None:
    assert (
        postgres_schema(
            "CREATE TABLE t (a INTEGER, b REAL, c TEXT PRIMARY KEY, d BLOB)\n WITHOUT ROWID"
        )
        == 'CREATE TABLE t (a BIGINT, b DOUBLE PRECISION, c TEXT COLLATE "C" PRIMARY KEY, d BYTEA)'
    )
