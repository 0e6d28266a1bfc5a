"""A real `mileage serve` for tests: its own process, ports, state and ledger; ended in the end.

with Gateway(tmp_path, engines=[engine.url]) as gateway:
    answer = gateway.client().chat.completions.create(...)
    (row,) = gateway.requests(1)
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
import openai
import psutil

from mileage.cli.listening import Listening
from mileage.core.errors import LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.loadgen.launched_server import free_port
from mileage.storage.queries import LedgerReader, RequestFilter
from tests.support.local_http import LOCAL

__all__ = ["Gateway", "free_port", "run_mileage", "wait_until"]

# How long is too long: it costs nothing where all is well, and a busy machine may be slow.
START_S = 120.0
STOP_S = 60.0
WAIT_S = 60.0
_POLL_S = 0.02
_MILEAGE = str(Path(sys.executable).with_name("mileage"))


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Ask again and again until the answer is true, and return it; AssertionError after that."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(_POLL_S)
    return found


def run_mileage(
    *arguments: str, state: Path, timeout_s: float = START_S
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [_MILEAGE, *arguments],
        env=_environment(state),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class Gateway:
    """One run of `mileage serve`. `engines` are KIND=URL, or URLs of a vLLM-like engine.

    Without engines the embedded one serves. `config` is the text of its mileage.toml. A second one
    in the same directory has the same state and ledger. `unready`: entering the context does not
    wait until it serves. Leaving the context stops it, and fails
    where it did not end with 0 or a traceback is in its log; a test's own failure carries the log.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        engines: Sequence[str] = (),
        config: str = "",
        environment: Mapping[str, str] | None = None,
        start_s: float = START_S,
        unready: bool = False,
    ) -> None:
        self.directory = directory
        self.state = directory / "state"
        self._log = directory / "gateway.log"
        self._start_s = start_s
        self._unready = unready
        self._environment = {**_environment(self.state), **(environment or {})}
        self._command = [_MILEAGE, "serve", "--json", "--port", "0", "--admin-port", "0"]
        if config:
            (directory / "mileage.toml").write_text(config)
            self._command += ["--config", str(directory / "mileage.toml")]
        for engine in engines:
            self._command += ["--engine", engine if "=" in engine else f"vllm={engine}"]
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []
        self._listening: Listening | None = None
        self._rest = b""

    # --- where it is --------------------------------------------------------------------------

    @property
    def listening(self) -> Listening:
        """What it printed when it was ready."""
        assert self._listening is not None, "the gateway was not started"
        return self._listening

    @property
    def ledger(self) -> str:
        """Where its ledger is."""
        assert self.listening.ledger is not None, "it keeps none"
        return self.listening.ledger

    @property
    def url(self) -> str:
        """Base URL of the API, ending in /v1."""
        return self.listening.url

    @property
    def root(self) -> str:
        """The same without /v1."""
        return self.url.removesuffix("/v1")

    @property
    def port(self) -> int:
        """Port of the data plane."""
        return int(self.root.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it wrote to stderr, over all runs in this directory."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and wait until it serves."""
        self._launch()
        self.wait_ready()

    def _launch(self) -> None:
        if self._process is not None:  # it was killed
            self._end()
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Wait until it says that it serves."""
        try:
            self._listening = msgspec.json.decode(self._first_line(), type=Listening)
        except BaseException:
            self._end()
            raise
        assert self._listening.pid == self.pid
        self._family = [psutil.Process(self.pid), *self._children()]

    def stop(self) -> int:
        """SIGTERM, and wait; its exit code. AssertionError where it does not end."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = STOP_S) -> int:
        """Wait for it to end; its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:g} s:\n{self.log}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill_supervisor(self) -> list[psutil.Process]:
        """kill -9 the supervisor alone; its children, which are to end by themselves."""
        assert self._process is not None
        children = self._children()
        self._process.kill()
        self._process.wait(STOP_S)
        return children

    def kill_all(self) -> None:
        """kill -9 the supervisor and all its children, as a machine that runs out of memory does.

        The supervisor is stopped first, so that it does not see its children die.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        children = self._children()
        for process in children:
            process.kill()
        self._process.kill()
        self._process.wait(STOP_S)
        psutil.wait_procs(children, timeout=STOP_S)

    def run_second(
        self, *arguments: str, state: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the same command once more, which is to fail soon; by default with the same state."""
        command = [*self._command[1:], *arguments]
        return run_mileage(*command, state=self.state if state is None else state)

    def workers(self) -> list[psutil.Process]:
        """Its worker processes that live now."""
        return [p for p in self._children() if "mileage.cli.worker" in _command_line(p)]

    def embedded(self) -> list[psutil.Process]:
        """The embedded engine's process, while it lives."""
        return [p for p in self._children() if "embedded.child" in _command_line(p)]

    def _children(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
        return children

    def __enter__(self) -> Self:
        self._launch()
        if not self._unready:
            self.wait_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        ended = self._process.poll() is not None
        try:
            code = self.stop()
        except AssertionError:
            self._end()
            if error is None:
                raise
            code = None
        finally:
            self._end()
        if error is not None:
            error.add_note(f"the gateway's log:\n{self.log}")
            return
        assert ended or code == 0, f"the gateway ended with {code}:\n{self.log}"
        assert not self._rest, f"more than one line on stdout: {self._rest!r}"
        assert "Traceback" not in self.log, f"a traceback in the log:\n{self.log}"

    def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        deadline_s = time.monotonic() + self._start_s
        while not line.endswith(b"\n"):
            wait_s = deadline_s - time.monotonic()
            if wait_s <= 0:
                raise AssertionError(f"not ready within {self._start_s:g} s:\n{self.log}")
            if select.select([self._process.stdout], [], [], wait_s)[0]:
                data = os.read(self._process.stdout.fileno(), 65_536)
                if not data:
                    code = self._process.wait(STOP_S)
                    raise AssertionError(f"ended with {code} before it was ready:\n{self.log}")
                line += data
        if line.startswith(b'{"error"'):
            code = self._process.wait(STOP_S)
            raise AssertionError(f"ended with {code} before it was ready:\n{self.log}")
        return line

    def _end(self) -> None:
        """Leave nothing behind, whatever happened."""
        assert self._process is not None
        if self._process.poll() is None:
            self._family = [*self._family, *psutil.Process(self._process.pid).children()]
            self._process.kill()
        self._process.wait(STOP_S)
        if self._process.stdout is not None and not self._process.stdout.closed:
            os.set_blocking(self._process.stdout.fileno(), False)
            self._rest = self._process.stdout.read() or b""
            self._process.stdout.close()
        for process in self._family:
            if process.is_running():
                process.kill()

    # --- what it says -------------------------------------------------------------------------

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, without retries unless asked for. Close it, or use it as context."""
        return openai.OpenAI(**{**self.client_options, **options})

    @property
    def client_options(self) -> dict[str, Any]:
        """What every client is made with, synchronous or not."""
        return {"base_url": self.url, "api_key": "none", "max_retries": 0, "timeout": START_S}

    def admin(self, path: str, method: str = "GET") -> Any:
        """The decoded answer of the control API."""
        token = Path(self.listening.admin_token_file or "").read_text().strip()
        answer = httpx.request(
            method,
            f"{self.listening.admin_url}{path}",
            headers={"authorization": f"Bearer {token}"},
            **LOCAL,
        )
        assert answer.status_code < 300, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def reload(self, config: str) -> None:
        """Write another configuration, and have it in force."""
        (self.directory / "mileage.toml").write_text(config)
        self.admin("/api/v1/config/reload", "POST")

    def replica(self, name: str | None = None) -> dict[str, Any]:
        """One replica as the control API tells it; without a name, the only one."""
        rows: list[dict[str, Any]] = self.admin("/api/v1/replicas")["replicas"]
        (row,) = [row for row in rows if name in (None, row["name"])]
        return row

    def wait_up(self) -> None:
        """Wait until every replica is up: the gateway is ready with the first one."""

        def all_up() -> bool:
            rows = self.admin("/api/v1/replicas")["replicas"]
            return all(row["state"] == "up" for row in rows)

        wait_until(all_up, "every replica is up")

    def requests(
        self, count: int, *, since_utc_ns: int | None = None, timeout_s: float = WAIT_S
    ) -> list[RequestTimeline]:
        """All requests in the ledger, in order of arrival, once there are `count` of them."""
        where = RequestFilter(since_utc_ns=since_utc_ns)
        rows: list[RequestTimeline] = []

        def enough() -> bool:
            rows[:] = self._rows(where)
            return len(rows) >= count

        try:
            wait_until(enough, "", timeout_s)
        except AssertionError:
            raise AssertionError(
                f"{len(rows)} of {count} requests in the ledger after {timeout_s:g} s: {rows}"
            ) from None
        assert len(rows) == count, f"{len(rows)} requests in the ledger instead of {count}: {rows}"
        return rows

    def requests_ended(self) -> list[RequestTimeline]:
        """All requests in the ledger, in order of arrival, of a gateway that has ended."""
        assert self._process is not None
        assert self._process.poll() is not None, "what is in the ledger may still grow"
        return self._rows(RequestFilter())

    def _rows(self, where: RequestFilter) -> list[RequestTimeline]:
        try:
            reader = LedgerReader(self.ledger)
        except LedgerError:  # not made yet
            return []
        try:
            return reader.last(100_000, where)[::-1]
        finally:
            reader.close()


def _environment(state: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(state)}


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
