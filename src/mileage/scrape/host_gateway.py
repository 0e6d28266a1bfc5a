"""GatewayPauses: a Mileage gateway's own pauses, asked of its admin plane while a run goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

import msgspec

from mileage.core.errors import EngineError
from mileage.measure.tail_host import Pause
from mileage.wire.fetch import Fetch, fetch

__all__ = ["GatewayPauses", "utc_pauses"]

_PERIOD_S = 10.0
"""The plane tells the last minute, and of each worker 256 pauses."""
_TIMEOUT_S = 3.0
_KEPT_MAX = 50_000


class _Row(msgspec.Struct, frozen=True):
    pid: int
    kind: Literal["gc", "event_loop"]
    at_utc_s: float
    length_s: float
    generation: int | None = None


class _Answer(msgspec.Struct):
    pauses: list[_Row]


class GatewayPauses:
    """Asks from `start` to `stop`; what cannot be had is in `missing`, and never raised."""

    def __init__(self, url: str, token: str | None, *, ask: Fetch = fetch) -> None:
        """`url`: the admin plane's, without a path."""
        self._url = url.rstrip("/")
        self._headers = () if token is None else (("authorization", f"Bearer {token}"),)
        self._ask_url = ask
        self._rows: dict[_Row, None] = {}
        self._task: asyncio.Task[None] | None = None
        self.missing: str | None = None
        """Why the last answer could not be had."""

    async def start(self) -> None:
        """Ask once, then again and again."""
        await self.ask()
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> list[Pause]:
        """Ask once more; the pauses, in seconds since 1970."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.ask()
        return utc_pauses(list(self._rows))

    async def ask(self) -> None:
        """One look."""
        try:
            answer = await self._ask_url(
                f"{self._url}/api/v1/pauses", headers=self._headers, timeout_s=_TIMEOUT_S
            )
            if answer.status != 200:
                hint = ": the admin token is not right" if answer.status in (401, 403) else ""
                self.missing = f"{self._url} answered with {answer.status}{hint}"
                return
            rows = msgspec.json.decode(answer.body, type=_Answer).pauses
        except EngineError as error:
            self.missing = f"{self._url}: {error.message}"
            return
        except msgspec.MsgspecError as error:
            self.missing = f"{self._url}: not a list of pauses: {error}"
            return
        self.missing = None
        for row in rows[: max(0, _KEPT_MAX - len(self._rows))]:
            self._rows[row] = None

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.ask()


def utc_pauses(rows: list[_Row]) -> list[Pause]:
    """The rows as pauses, in seconds since 1970."""
    return [
        Pause(
            cause=row.kind,
            role="gateway",
            start_s=row.at_utc_s,
            end_s=row.at_utc_s + row.length_s,
            busy_s=row.length_s,
            pid=row.pid,
            detail="" if row.generation is None else f"generation {row.generation}",
        )
        for row in rows
    ]
