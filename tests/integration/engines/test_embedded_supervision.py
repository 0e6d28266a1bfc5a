"""How the engine keeps a child: real processes, but ones that only play llama.cpp."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mileage.core.errors import EngineError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus
from mileage.engines.embedded.open_adapter import OpenAdapter
from tests.support.gguf_builder import gguf

WAIT_S = 60.0

CHILD = """
import json, os, socket, sys, time
params = json.loads(sys.stdin.readline())
{body}
"""
SERVES = """
print('{"type": "ready"}', flush=True)
sys.stdin.read()
"""
LISTENS = """
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("127.0.0.1", params["port"]))
server.listen()
"""


def command(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", CHILD.replace("{body}", body))


class Host:
    """An engine over a fake child, and the changes that it reported."""

    def __init__(self, tmp_path: Path, body: str, *, start_timeout_s: float = WAIT_S) -> None:
        model = tmp_path / "m.gguf"
        model.write_bytes(gguf())
        self.changes: list[EmbeddedStatus] = []
        self._changed = asyncio.Event()
        self.engine = EmbeddedEngine(
            EmbeddedConfig(restart_backoff_s=0.02, restart_backoff_max_s=0.04),
            model_path=model,
            state_dir=tmp_path / "state",
            on_change=self._on_change,
            start_timeout_s=start_timeout_s,
            command=command(body),
        )

    def _on_change(self, status: EmbeddedStatus) -> None:
        self.changes.append(status)
        self._changed.set()

    async def until(self, condition: Callable[[list[EmbeddedStatus]], bool]) -> None:
        """Wait until the changes so far meet the condition."""
        async with asyncio.timeout(WAIT_S):
            while not condition(self.changes):
                self._changed.clear()
                await self._changed.wait()


def children() -> list[int]:
    return [p.pid for p in psutil.Process().children()]


def test_a_child_that_dies_is_replaced_at_the_same_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, LISTENS + SERVES)
        await host.engine.start()
        url, first = host.engine.url, host.engine.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await host.until(lambda changes: len(changes) == 3)
        up, down, again = host.changes
        assert (up.state, up.pid) == ("up", first)
        assert (down.state, down.pid) == ("down", None)
        assert down.reason is not None
        assert down.reason.startswith("was killed by SIGKILL")
        assert (again.state, again.reason) == ("up", None)
        assert again.pid == host.engine.pid != first
        assert host.engine.url == url
        await host.engine.stop(WAIT_S)

    asyncio.run(scenario())
    assert children() == []


def test_it_loads_until_it_serves_and_not_while_it_waits_for_the_next_start(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, LISTENS + SERVES)
        seen = [host.engine.loading]
        starting = asyncio.create_task(host.engine.start())
        while not host.engine.loading:
            await asyncio.wait([starting], timeout=0.01)
        await starting
        seen.append(host.engine.loading)
        assert host.engine.pid is not None
        os.kill(host.engine.pid, signal.SIGKILL)
        await host.until(lambda changes: changes[-1].state == "down")
        seen.append(host.engine.loading)
        await host.engine.stop(WAIT_S)
        assert seen == [False, False, False]

    asyncio.run(scenario())


def test_the_last_words_of_a_child_are_reported(tmp_path: Path) -> None:
    body = SERVES.replace("sys.stdin.read()", "sys.exit('GGML_ASSERT(n > 0) failed')")

    async def scenario() -> None:
        host = Host(tmp_path, body)
        await host.engine.start()
        await host.until(lambda changes: len(changes) >= 2)
        await host.engine.stop(WAIT_S)
        reason = host.changes[1].reason
        assert reason is not None
        assert reason.startswith("exited with code 1: GGML_ASSERT(n > 0) failed")

    asyncio.run(scenario())
    assert "GGML_ASSERT" in (tmp_path / "state" / "embedded.log").read_text()


def test_starts_are_tried_again_and_again(tmp_path: Path) -> None:
    counter = tmp_path / "starts"
    body = (
        f"""
starts = os.path.getsize({str(counter)!r})
open({str(counter)!r}, "a").write("x")
if starts == 0:
    print('{{"type": "ready"}}', flush=True)
    sys.exit(3)
if starts < 4:
    print('{{"type": "failed", "reason": "no memory"}}', flush=True)
    sys.exit(1)
"""
        + SERVES
    )
    counter.touch()

    async def scenario() -> None:
        host = Host(tmp_path, body)
        await host.engine.start()
        await host.until(lambda changes: [c.state for c in changes].count("up") == 2)
        await host.engine.stop(WAIT_S)
        assert [c.state for c in host.changes] == ["up", "down", "down", "down", "down", "up"]
        assert "could not start: no memory" in (host.changes[2].reason or "")
        assert "next start in 0.0 s" in (host.changes[2].reason or "")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            """print('{"type": "failed", "reason": "too large"}'); sys.exit(1)""",
            "could not start: too large",
            id="it says why",
        ),
        pytest.param(
            "sys.exit('a bad library')", "exited with code 1: a bad library", id="it ends"
        ),
        pytest.param(
            "os.kill(os.getpid(), 11)", "was killed by SIGSEGV", id="it crashes before a word"
        ),
        pytest.param("print('hello'); sys.exit(0)", "could not start", id="it talks nonsense"),
    ],
)
def test_a_failed_first_start_is_an_error(tmp_path: Path, body: str, message: str) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, body)
        with pytest.raises(EngineError, match=message):
            await host.engine.start()
        assert host.changes == []
        assert host.engine.pid is None

    asyncio.run(scenario())
    assert children() == []


def test_a_start_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, "time.sleep(60)", start_timeout_s=0.3)
        with pytest.raises(EngineError, match="was not ready within 0 s"):
            await host.engine.start()

    asyncio.run(scenario())
    assert children() == []


def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, "time.sleep(60)")
        task = asyncio.create_task(host.engine.start())
        async with asyncio.timeout(WAIT_S):
            while not children():  # noqa: ASYNC110 - the system tells no one of a new process
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert children() == []


def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    body = SERVES.replace("sys.stdin.read()", "time.sleep(60)")

    async def scenario() -> float:
        host = Host(tmp_path, body)
        await host.engine.start()
        began_s = time.monotonic()
        await host.engine.stop(0.2)
        return time.monotonic() - began_s

    assert 0.2 <= asyncio.run(scenario()) < 30.0  # not the minute that the child would take
    assert children() == []


def test_stopping_while_the_child_is_down_starts_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, SERVES)
        await host.engine.start()
        assert host.engine.pid is not None
        os.kill(host.engine.pid, signal.SIGKILL)
        await host.until(lambda changes: changes[-1].state == "down")
        await host.engine.stop(WAIT_S)
        await asyncio.sleep(0.1)
        assert host.changes[-1].state == "down"

    asyncio.run(scenario())
    assert children() == []


def test_parameters_are_not_in_the_command_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = Host(tmp_path, SERVES)
        await host.engine.start()
        line = " ".join(psutil.Process(host.engine.pid).cmdline())
        assert host.engine.authorization.removeprefix("Bearer ") not in line
        await host.engine.stop(WAIT_S)

    asyncio.run(scenario())


PARENT = """
import asyncio, sys
from pathlib import Path
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine

async def main():
    model, *command = sys.argv[1:]
    engine = EmbeddedEngine(
        EmbeddedConfig(),
        model_path=Path(model),
        state_dir=Path(model).parent,
        on_change=lambda status: print(status.pid, flush=True),
        command=command,
    )
    await engine.start()
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(gguf())
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), *command(SERVES)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(WAIT_S)


READS = "for path in params['adapters']: open(path).read()\n"


def opened(tmp_path: Path) -> OpenAdapter:
    path = tmp_path / "a.gguf"
    path.write_text("an adapter")
    return OpenAdapter(path)


def test_adapters_are_found_by_later_children_though_their_file_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        host, adapter = Host(tmp_path, READS + LISTENS + SERVES), opened(tmp_path)
        await host.engine.start()
        old = await host.engine.swap([adapter])
        await old.end(drain_s=0.0, grace_s=WAIT_S)
        adapter.path.unlink()
        assert children() == [host.engine.pid]
        os.kill(host.engine.pid or 0, signal.SIGKILL)
        await host.until(lambda changes: [c.state for c in changes][-2:] == ["down", "up"])
        await host.engine.stop(WAIT_S)
        adapter.close()

    asyncio.run(scenario())
    assert children() == []


def test_a_child_that_dies_while_another_takes_over_leaves_none_behind(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"while params['adapters'] and not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"

    async def scenario() -> None:
        host, adapter = Host(tmp_path, waits + LISTENS + SERVES), opened(tmp_path)
        await host.engine.start()
        swap = asyncio.create_task(host.engine.swap([adapter]))
        async with asyncio.timeout(WAIT_S):
            while len(children()) < 2:  # noqa: ASYNC110 -- another process tells nobody
                await asyncio.sleep(0.01)
        os.kill(host.engine.pid or 0, signal.SIGKILL)
        await host.until(lambda changes: [c.state for c in changes][-2:] == ["down", "up"])
        gate.touch()
        old = await swap
        assert old.pid != host.engine.pid
        await old.end(drain_s=0.0, grace_s=WAIT_S)
        assert children() == [host.engine.pid]
        await host.engine.stop(WAIT_S)
        adapter.close()

    asyncio.run(scenario())
    assert children() == []


def test_who_gives_up_a_swap_leaves_no_child_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        never = "if params['adapters']: time.sleep(600)\n"
        host, adapter = Host(tmp_path, never + SERVES), opened(tmp_path)
        await host.engine.start()
        before = children()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await host.engine.swap([adapter])
        assert children() == before == [host.engine.pid]
        await host.engine.stop(WAIT_S)
        adapter.close()

    asyncio.run(scenario())
    assert children() == []
