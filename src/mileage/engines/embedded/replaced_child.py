"""ReplacedChild: a child that another one has taken over from, until its last answer is out."""

from __future__ import annotations

import asyncio
import socket

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.embedded.child_process import ChildProcess
from mileage.wire.fetch import fetch

__all__ = ["ReplacedChild"]

_LOOK_S = 0.25
_ANSWER_S = 5.0


class _Slot(msgspec.Struct):
    is_processing: bool = False


class ReplacedChild:
    """Serves what it has; nothing new is to be sent to it."""

    def __init__(
        self, child: ChildProcess, port_holder: socket.socket, url: str, authorization: str
    ) -> None:
        self._child, self._port_holder = child, port_holder
        self._url, self._authorization = url, authorization

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    async def end(self, *, drain_s: float, grace_s: float) -> None:
        """End it when it runs nothing any more, after `drain_s` in any case."""
        try:
            async with asyncio.timeout(drain_s):
                idle = 0
                while (
                    idle < 2 and not self._child.ended
                ):  # what was sent last may still be on its way
                    await asyncio.sleep(_LOOK_S)
                    idle = 0 if await self._runs() else idle + 1
        except TimeoutError:
            pass
        finally:
            await self._child.stop(grace_s)
            self._port_holder.close()

    async def _runs(self) -> bool:
        """Whether a request runs; one that does not answer may be reading a long prompt."""
        try:
            answer = await fetch(
                f"{self._url}/slots",
                headers=[("authorization", self._authorization)],
                timeout_s=_ANSWER_S,
            )
            return any(s.is_processing for s in msgspec.json.decode(answer.body, type=list[_Slot]))
        except (EngineError, msgspec.DecodeError):
            return True
