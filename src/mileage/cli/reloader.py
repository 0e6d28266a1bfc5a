"""Reloader: reads the configuration again, when asked or when it was written, and applies it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from mileage.cli.config import Config
from mileage.cli.config_source import ConfigSource, Seen, certificate_digest, check_exposure
from mileage.cli.hot_keys import Plan, plan
from mileage.core.errors import ConfigError, MileageError
from mileage.gateway.admin.reload import ConfigStatus, Reloaded
from mileage.gateway.admin.trial import Trial
from mileage.gateway.supervisor import Confirmed

__all__ = ["Apply", "Reloader"]

_CERTIFICATE = "server.tls_cert"
_WATCH_S = 1.0
_AGAIN_S = 10.0
_log = logging.getLogger(__name__)


class Apply(Protocol):
    """Makes a configuration be in force, and says which workers have taken it."""

    def __call__(self, version: int, config: Config, /) -> Awaitable[Confirmed]: ...


class Reloader:
    """Holds the configuration in force, `config`, and its `version`.

    A configuration that is not in order changes nothing. One reload is done at a time, each with
    what is written when its turn comes. `run` reloads when `ask` was called, and, where
    server.watch_config says so, when the files were written: once they look the same for two looks
    on end, since an editor may write them in parts, or put another in their place.
    """

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        apply: Apply,
        *,
        utc_s: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._source, self._apply, self._utc_s = source, apply, utc_s
        self._certificate = certificate_digest(config.server)
        self._trial_ends_s: float | None = None  # on time.monotonic
        self._turn = asyncio.Lock()
        self._asked = asyncio.Event()
        now_s = utc_s()
        self._status = ConfigStatus(version=1, since_utc_s=now_s, read_utc_s=now_s)

    @property
    def version(self) -> int:
        """1 at the start; one more with every reload that changes something."""
        return self._status.version

    def status(self) -> ConfigStatus:
        """The configuration in force, and the last attempt to reload it."""
        return self._status

    def ask(self) -> None:
        """Have `run` reload at once."""
        self._asked.set()

    async def reload(self, why: str) -> Reloaded:
        """Read, check and apply what is written. `why` is for the log.

        Raises ConfigError where it is not in order; then nothing has changed.
        """
        async with self._turn:
            try:
                found = await asyncio.to_thread(self._plan)
            except MileageError as error:
                self._refused(error, why)
                raise
            except Exception as error:  # a bug of ours: what runs goes on
                self._refused(error, why)
                raise MileageError(f"the configuration could not be read: {error!r}") from error
            return await self._carry_out(*found, why)

    async def try_settings(self, trial: Trial) -> Reloaded:
        """Put settings in force over what is written, until they are ended or have run out.

        Raises ConfigError where what comes of it is not in order, or a setting needs a restart;
        then all is as it was before, an earlier trial, too.
        """
        async with self._turn:
            before = self._source.trial
            self._source.trial = trial.settings
            try:
                found, certificate = await asyncio.to_thread(self._plan)
                for key in found.restart_needed:
                    if any(_meet(key, name) for name in trial.settings):
                        raise ConfigError(key, "on trial", "a key that needs no restart")
            except BaseException:
                self._source.trial = before
                raise
            return await self._on_trial(trial, found, certificate)

    async def _on_trial(self, trial: Trial, found: Plan, certificate: str | None) -> Reloaded:
        until_utc_s = None
        self._trial_ends_s = None
        if trial.settings:
            self._trial_ends_s = time.monotonic() + trial.for_s
            until_utc_s = self._utc_s() + trial.for_s
        self._status = msgspec.structs.replace(
            self._status, trial=sorted(trial.settings), trial_until_utc_s=until_utc_s
        )
        why = f"on trial: {', '.join(trial.settings)}" if trial.settings else "a trial ends"
        return await self._carry_out(found, certificate, why)

    async def _end_trial_in_time(self) -> None:
        """Nobody has ended it, or gone on with it: what is written is in force again."""
        if self._trial_ends_s is not None and time.monotonic() >= self._trial_ends_s:
            _log.warning("settings on trial have run out: %s", ", ".join(self._source.trial))
            try:
                await self.try_settings(Trial(settings={}, for_s=1.0))
            except MileageError as error:  # what is written is not in order, perhaps soon
                _log.error("they stay in force for now: %s", error)
                self._trial_ends_s = time.monotonic() + _AGAIN_S

    async def run(self) -> None:
        """Reload when asked, and when the files were written; until cancelled."""
        before: Seen = {}
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await self._asked.wait()
            with contextlib.suppress(MileageError):  # it is logged and in the status
                await self._end_trial_in_time()
                if self._asked.is_set():
                    self._asked.clear()
                    await self.reload("SIGHUP")
                elif self.config.server.watch_config:
                    now = await asyncio.to_thread(self._source.look)
                    if now != self._source.seen and now == before and _whole(now):
                        await self.reload("a file was written")
                    before = now

    def _plan(self) -> tuple[Plan, str | None]:
        found = plan(self.config, self._source.load())
        check_exposure(found.config)  # what is hot may not fit with what is not
        return found, certificate_digest(found.config.server)

    async def _carry_out(self, found: Plan, certificate: str | None, why: str) -> Reloaded:
        renewed = certificate != self._certificate
        changed = [*found.changed, *([_CERTIFICATE] if renewed else [])]
        now_s = self._utc_s()
        version, since_s = self.version, self._status.since_utc_s
        if renewed or found.config != self.config:
            version, since_s = version + 1, now_s
        self.config, self._certificate = found.config, certificate
        self._status = msgspec.structs.replace(
            self._status,
            version=version,
            since_utc_s=since_s,
            read_utc_s=now_s,
            error=None,
            restart_needed=found.restart_needed,
            reloads_total=self._status.reloads_total + 1,
        )
        confirmed = await self._apply(version, found.config)
        reloaded = Reloaded(
            version=version,
            changed=changed,
            restart_needed=found.restart_needed,
            applied_by=confirmed.by,
            unconfirmed=confirmed.not_by,
        )
        _tell(reloaded, why)
        return reloaded

    def _refused(self, error: Exception, why: str) -> None:
        self._status = msgspec.structs.replace(
            self._status, error=str(error), failures_total=self._status.failures_total + 1
        )
        _log.error(
            "the configuration was not reloaded (%s), version %d stays: %s",
            why,
            self.version,
            error,
            exc_info=None if isinstance(error, ConfigError) else error,
        )


def _meet(key: str, other: str) -> bool:
    """One of two dotted keys is the other, or within it."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _whole(seen: Seen) -> bool:
    """A file that is away or empty is about to be written."""
    return all(look is not None and look.size_bytes > 0 for look in seen.values())


def _tell(reloaded: Reloaded, why: str) -> None:
    cold = reloaded.restart_needed
    _log.warning(
        "configuration %d is in force (%s); changed: %s%s%s",
        reloaded.version,
        why,
        ", ".join(key for key in reloaded.changed if key not in cold) or "nothing",
        f"; needs a restart: {', '.join(cold)}" if cold else "",
        f"; not confirmed by {reloaded.unconfirmed}" if reloaded.unconfirmed else "",
    )
