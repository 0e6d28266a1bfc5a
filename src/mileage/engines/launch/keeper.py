"""The process between the launcher and the engine: it leaves nothing of the engine behind.

`python -m mileage.engines.launch.keeper`. It starts the engine in a process group of its own and
ends as the engine ends. Its standard input is the launcher's hand on it: when that closes, because
the launcher asks for it or has been killed, everything that the engine started is killed. SIGTERM
and SIGINT are passed on to the engine alone. Orphans of the engine become the keeper's children
(PR_SET_CHILD_SUBREAPER), so that none is overlooked, and the engine dies with the keeper
(PR_SET_PDEATHSIG).

Without an engine it keeps what engines share: it ends that when its standard input closes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

import msgspec
import psutil

from mileage.engines.launch.family import adopt_orphans, die_with_parent, kill_family
from mileage.engines.launch.keeper_params import AtEnd, KeeperParams
from mileage.engines.launch.mps_share import end_if_last

__all__ = ["CANNOT_START", "main"]

CANNOT_START: Final = 127
"""As of a shell: the program is not there, or is none."""
_AT_END_S: Final = 10.0
_GONE_S: Final = 10.0


def main() -> int:
    """Run the engine; returns its exit code, or -N where signal N ended it."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the launcher tells what is to be done
        signal.signal(number, signal.SIG_IGN)
    woken = _wake_on_child()
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # the launcher is gone already
    params = msgspec.json.decode(line, type=KeeperParams)
    adopt_orphans()
    if not params.command:
        return _keep_for_all(params.at_end)
    try:
        engine = _start(params)
    except OSError as error:
        text = f"{params.command[0]}: cannot be started: {error.strerror or error}\n"
        os.write(2, text.encode())
        return CANNOT_START
    signal.signal(signal.SIGTERM, lambda number, frame: _pass_on(engine, number, frame))
    _wait(engine, woken)
    if engine.poll() is None:
        engine.kill()
    code = _reaped(engine)  # before the others: whoever reaps it gets its exit code
    kill_family()
    return code


def _keep_for_all(at_end: AtEnd) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of a whole service: the engines end first
    sys.stdin.buffer.read()
    if at_end.share is None:
        _end(at_end)
    else:
        end_if_last(at_end.share, lambda: _end(at_end))
    return 0


def _wake_on_child() -> int:
    """A descriptor that can be read from when a child has ended or another signal came."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reading


def _start(params: KeeperParams) -> subprocess.Popen[bytes]:
    own = os.getpid()

    def die_with_keeper() -> None:  # safe: this process has one thread
        die_with_parent()
        if os.getppid() != own:
            os._exit(CANNOT_START)

    return subprocess.Popen(  # noqa: S603 -- the user's own command
        params.command,
        env={**os.environ, **params.environment},
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=die_with_keeper,
    )


def _pass_on(engine: subprocess.Popen[bytes], number: int, _: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        engine.send_signal(number)


def _wait(engine: subprocess.Popen[bytes], woken: int) -> None:
    """Until the engine ends, or standard input does."""
    hand = sys.stdin.fileno()
    while engine.poll() is None:
        ready, _, _ = select.select([hand, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap_orphans(engine.pid)
        if hand in ready and not os.read(hand, 4096):
            return


def _reaped(engine: subprocess.Popen[bytes]) -> int:
    """Its exit code; one that not even SIGKILL ends, as it waits for a disk, is left behind."""
    try:
        return engine.wait(_GONE_S)
    except subprocess.TimeoutExpired:
        os.write(2, f"process {engine.pid} does not end, though killed: left behind\n".encode())
        return -signal.SIGKILL


def _reap_orphans(engine_pid: int) -> None:
    """Take notice of adopted processes that have ended, so that they do not pile up."""
    for process in psutil.Process().children():
        with contextlib.suppress(OSError, psutil.Error):
            if process.pid != engine_pid and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


def _end(at_end: AtEnd) -> None:
    if at_end.command:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 -- made by `mps`
                at_end.command,
                env={**os.environ, **at_end.environment},
                input=at_end.text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_AT_END_S,
                check=False,
            )
        kill_family()
    for path in at_end.remove:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    code = main()
    if code < 0:  # end as the engine did, for whoever waits for us; without a core of our own
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
