"""ArmSwitch: makes one endpoint work by the settings of one arm, and puts back what was before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from mileage.core.errors import EngineError
from mileage.loadgen.arms_slots import Arm
from mileage.wire.fetch import FetchError, fetch
from mileage.wire.url import display_url

__all__ = ["LEASE_S", "ArmSwitch", "CommandSwitch", "ControlSwitch", "until_ready"]

LEASE_S: Final = 60.0
"""So long after our end, however sudden, the gateway still has the settings of an arm."""
_RENEWED_RATIO: Final = 0.3
"""Of the lease, after which it is renewed: two may fail before it has run out."""

_ASK_S: Final = 20.0
_LOOK_S: Final = 5.0
_AGAIN_S: Final = 0.25


class ArmSwitch(Protocol):
    """Changes what an endpoint works by."""

    async def to(self, arm: Arm) -> str:
        """Make the endpoint work by the arm's settings; returns when it does, and what says so.

        Raises EngineError where it does not.
        """
        ...

    async def restore(self) -> None:
        """Put back what was before the first `to`. Raises EngineError where that fails."""
        ...


class ControlSwitch:
    """Settings of a Mileage gateway, by its admin plane: on trial, for `lease_s` seconds at a time.

    The gateway itself goes back to its configuration when the lease has run out: also where nobody
    is left to ask it to. `renewed`: it is asked for more time until the next change, so that a slot
    may last longer than a lease.
    """

    def __init__(
        self,
        admin_url: str,
        token: str,
        settings: Mapping[Arm, dict[str, Any]],
        *,
        lease_s: float = LEASE_S,
        renewed: bool = False,
    ) -> None:
        self._url = f"{admin_url.rstrip('/')}/api/v1/config/trial"
        self._token, self._settings, self._lease_s = token, settings, lease_s
        self._renewed, self._change = renewed, asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def to(self, arm: Arm) -> str:
        """See ArmSwitch: every worker has confirmed the version that is told.

        Raises EngineError, too, where the settings of the arm before ran out in its slot.
        """
        await self._let_go()
        found = await self._ask({"set": self._settings[arm], "for_s": self._lease_s})
        if found.unconfirmed:
            pids = ", ".join(map(str, found.unconfirmed))
            raise EngineError(self._shown, f"workers have not taken the settings: pid {pids}")
        if self._renewed and self._settings[arm]:
            self._keeper = asyncio.create_task(self._keep(arm))
        return f"configuration {found.version}"

    async def restore(self) -> None:
        """See ArmSwitch."""
        with contextlib.suppress(EngineError):  # what ran out is put back already
            await self._let_go()
        await self._ask({"set": {}, "for_s": 1.0})

    async def _keep(self, arm: Arm) -> None:
        """Ask for more time until the next change. Raises EngineError once it has run out."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._lease_s
        while not await self._changes_within(self._lease_s * _RENEWED_RATIO):
            asked_s = loop.time()
            try:
                await self._ask({"set": self._settings[arm], "for_s": self._lease_s})
                until_s = asked_s + self._lease_s
            except (EngineError, FetchError) as error:
                if loop.time() > until_s:
                    text = f"the settings of arm {arm} ran out in its slot: {error}"
                    raise EngineError(self._shown, text) from error

    async def _changes_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._change.wait(), seconds)
        return self._change.is_set()

    async def _let_go(self) -> None:
        """End the renewing: what is being asked is waited for, else it could come after the change.

        Raises EngineError where the lease had run out.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._change.set()
            try:
                await keeper
            finally:
                self._change.clear()

    @property
    def _shown(self) -> str:
        return display_url(self._url)

    async def _ask(self, document: dict[str, Any]) -> _Taken:
        answer = await fetch(
            self._url,
            method="POST",
            headers=(
                ("authorization", f"Bearer {self._token}"),
                ("content-type", "application/json"),
            ),
            body=msgspec.json.encode(document),
            timeout_s=_ASK_S,
        )
        if answer.status == 404:
            raise EngineError(self._shown, "no such path: is this a Mileage admin plane of today?")
        if answer.status != 200:
            raise EngineError(self._shown, f"answered {answer.status}: {_message(answer.body)}")
        try:
            return msgspec.json.decode(answer.body, type=_Taken)
        except msgspec.MsgspecError as error:
            raise EngineError(self._shown, f"no answer of an admin plane: {error}") from error


class _Taken(msgspec.Struct):
    version: int
    unconfirmed: list[int] = []


class _Message(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Message


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Refusal).error.message
    except msgspec.MsgspecError:
        return "is this a Mileage admin plane?"


class CommandSwitch:
    """A user's commands, run by the shell with MILEAGE_ARM set to a, b or end.

    What they print goes to standard error. One that takes longer than `timeout_s` is killed with
    all that it started.
    """

    def __init__(
        self, commands: Mapping[Arm, str], *, end: str | None = None, timeout_s: float
    ) -> None:
        self._commands, self._end, self._timeout_s = commands, end, timeout_s

    async def to(self, arm: Arm) -> str:
        """See ArmSwitch: the command has ended with 0."""
        if arm in self._commands:
            await self._run(f"--command-{arm}", self._commands[arm], arm)
        return "exit code 0"

    async def restore(self) -> None:
        """See ArmSwitch."""
        if self._end is not None:
            await self._run("--command-end", self._end, "end")

    async def _run(self, name: str, command: str, arm: str) -> None:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**os.environ, "MILEAGE_ARM": arm},
            start_new_session=True,  # Ctrl-C is for the run, which then puts things back
        )
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ended}, timeout=self._timeout_s)
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            code = await asyncio.shield(ended)
        if code == -signal.SIGKILL:
            raise EngineError(name, f"was killed, perhaps for taking over {self._timeout_s:g} s")
        if code:
            raise EngineError(name, f"ended with exit code {code}")


async def until_ready(url: str, *, authorization: str | None, timeout_s: float) -> None:
    """Wait until an endpoint answers: a command may have started it anew.

    Any answer below 500 will do. Raises EngineError where none came in time.
    """
    headers = () if authorization is None else (("authorization", authorization),)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    while True:
        try:
            answer = await fetch(f"{url}/v1/models", headers=headers, timeout_s=_LOOK_S)
            if answer.status < 500:
                return
            why = f"answers {answer.status}"
        except FetchError as error:
            why = error.message
        if loop.time() >= end_s:
            raise EngineError(display_url(url), f"not ready within {timeout_s:g} s: {why}")
        await asyncio.sleep(_AGAIN_S)
