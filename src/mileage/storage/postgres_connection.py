"""PostgresConnection: a connection to PostgreSQL that understands the ledger's statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from mileage.core.errors import LedgerError
from mileage.storage.connection import Cursor
from mileage.storage.postgres_address import display_address
from mileage.storage.postgres_dialect import postgres_sql

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresConnection", "connect", "out_of_reach", "postgres_errors"]

_SETTINGS: Final = {
    "application_name": "mileage",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    # A peer that vanished is noticed in half a minute, whoever waits for it.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SESSION: Final = (
    "SET lock_timeout = '20s'",
    "SET statement_timeout = '{statement_s}s'",
    # One that died within a transaction does not keep the others from theirs.
    "SET idle_in_transaction_session_timeout = '60s'",
)


class PostgresConnection:
    """In autocommit mode. Methods raise LedgerError, which names the database."""

    def __init__(self, raw: psycopg.Connection[Any], path: str) -> None:
        self.raw, self.path = raw, path

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Run one statement, written for SQLite."""
        with postgres_errors(self.path):
            return self.raw.execute(postgres_sql(sql), _named(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Run it for each of the parameters."""
        with postgres_errors(self.path):
            cursor = self.raw.cursor()
            rows = list(parameters)
            if rows:
                cursor.executemany(postgres_sql(sql), rows)
            return cursor

    @property
    def alive(self) -> bool:
        """Whether it was not closed, by us or as far as we know by the other side."""
        return not self.raw.closed

    def close(self) -> None:
        """Close it; twice is fine."""
        self.raw.close()


def _named(sql: str, parameters: Sequence[Any]) -> Sequence[Any] | dict[str, Any]:
    """Parameters of a statement as its placeholders have them: in order, or by number."""
    if "?1" not in sql:
        return parameters
    return {f"p{place}": value for place, value in enumerate(parameters, start=1)}


def connect(address: str, *, statement_s: int = 60) -> PostgresConnection:
    """Connect to the database of the address. Raises LedgerError, also where psycopg is missing.

    A password comes from where libpq has it: PGPASSFILE, ~/.pgpass, PGPASSWORD, a service file.
    """
    path = display_address(address)
    try:
        import psycopg
        from psycopg.adapt import Loader
    except ImportError as error:
        raise LedgerError(
            path, f"needs psycopg: pip install 'mileage[postgres]' ({error})"
        ) from error

    class WholeLoader(Loader):
        """Sums of whole numbers are `numeric`: they are whole, too."""

        def load(self, data: Any) -> int | float:
            text = bytes(data)
            return float(text) if b"." in text or b"N" in text else int(text)

    with postgres_errors(path):
        raw = psycopg.connect(address, autocommit=True, **_SETTINGS)  # type: ignore[arg-type]
        try:
            raw.adapters.register_loader("numeric", WholeLoader)
            for sql in _SESSION:
                raw.execute(sql.format(statement_s=statement_s).encode())
        except BaseException:
            raw.close()
            raise
    return PostgresConnection(raw, path)


@contextmanager
def postgres_errors(path: str) -> Iterator[None]:
    """Turn every error of psycopg into a LedgerError that names the database."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # One line; the second one of a server's answer repeats the statement.
        message = (str(error) or type(error).__name__).strip().split("\n")[0]
        raise LedgerError(path, message) from error


def out_of_reach(error: LedgerError) -> bool:
    """Whether the same may work later without anyone changing the database or this program: the
    server is down or restarted, say, or its disk is full."""
    try:
        import psycopg
    except ImportError:
        return False
    return isinstance(error.__cause__, psycopg.OperationalError)
