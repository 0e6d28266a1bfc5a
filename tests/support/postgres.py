"""A PostgreSQL server of a test's own, from Debian's package; ended with all that it began."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

__all__ = ["PostgresServer", "find_postgres", "postgres_server", "rows_of"]

_USER = "mileage"


def find_postgres() -> Path:
    """The directory of its programs; the test is skipped where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    if initdb is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    return Path(initdb).resolve().parent


class PostgresServer:
    """Listens on a port of 127.0.0.1; `database` makes empty databases in it."""

    def __init__(self, directory: Path) -> None:
        self._programs, self._directory = find_postgres(), directory
        self._data = directory / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged(directory)
        self._run(
            ["initdb", "-D", str(self._data), "-U", _USER, "-A", "trust", "--no-sync", "-E", "UTF8"]
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": self.port,
            "fsync": "off",
            "shared_buffers": "32MB",
            "autovacuum": "off",
        }
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._user,
            )
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.address("postgres"), connect_timeout=10).close()
                return
            assert self._process.poll() is None, (self._directory / "server.log").read_text()
            assert time.monotonic() < deadline, (self._directory / "server.log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, with every connection, as a crash would; twice is fine."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None

    def address(self, database: str) -> str:
        """As `[ledger] database` has it."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        """Make an empty database; its address."""
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.address(name)

    def _run(self, command: Sequence[str]) -> None:
        program, *arguments = command
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            **self._user,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _unprivileged(directory: Path) -> dict[str, Any]:
    """Who runs the server, as options of Popen: it refuses to be root's."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def rows_of(address: str, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """What the database says."""
    with psycopg.connect(address, autocommit=True) as connection:
        return connection.execute(sql.encode(), parameters).fetchall()


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """One that runs, in a directory that its user may enter; ended, and nothing is left of it."""
    find_postgres()
    with tempfile.TemporaryDirectory(prefix="mileage-postgres-") as directory:
        server = PostgresServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()
