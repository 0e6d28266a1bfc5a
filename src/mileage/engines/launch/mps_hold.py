"""The MPS daemon of a launch: it runs at each start of the engine, and ends after the last one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Final

import msgspec

from mileage.core.errors import EngineError
from mileage.engines.launch.engine_process import KEEPER
from mileage.engines.launch.keeper_params import AtEnd, KeeperParams
from mileage.engines.launch.mps import Mps, check_pipe, start_mps
from mileage.engines.launch.mps_share import MpsShare
from mileage.engines.launch.settings import MpsSettings

__all__ = ["MpsHold"]

_CLOSE_S: Final = 30.0


class MpsHold:
    """Others may share the daemon, so that it is not ended while the engine is only restarted.

    If a launch has started it, a keeper that has no engine ends it when its standard input closes:
    that of the last launch which shares it. The
    launcher has the other end of that, and so have the keepers of engines (`descriptors`):
    however these end, the daemon outlives the engine.
    """

    def __init__(self, settings: MpsSettings) -> None:
        self._settings = settings
        self._keeper: subprocess.Popen[bytes] | None = None
        self.descriptors: tuple[int, ...] = ()
        """To be inherited by each keeper of an engine."""

    def start(self) -> dict[str, str]:
        """See to it that the daemon runs; the engine's variables. It blocks; raises as `start_mps`.

        The second time it is the same daemon, or, should that have ended, one in its place.
        """
        pipe = self._settings.pipe_directory
        if pipe is None or self._keeper is not None:
            found = self._start()[0]
            if self._keeper is None:
                self._hold(found.at_end)
        else:
            found = self._join(pipe)
        self._settings = msgspec.structs.replace(
            self._settings,
            pipe_directory=found.pipe_directory,
            log_directory=found.log_directory,
        )
        return found.environment

    def _start(self) -> tuple[Mps, bool]:
        found = start_mps(**msgspec.structs.asdict(self._settings))
        return found, found.started

    def _join(self, pipe: str) -> Mps:
        """The daemon of a directory that others may use as well; the last of them ends it."""
        check_pipe(pipe)
        share = MpsShare(pipe)
        try:
            found, ours = share.enter(self._start)
            if ours:
                self._hold(msgspec.structs.replace(found.at_end, share=share.descriptor))
        finally:
            share.close()
        return found

    def close(self) -> None:
        """Have it ended, unless it is somebody else's or others share it, and wait for that."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()
        if self._keeper is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(_CLOSE_S)
            self._keeper = None

    def _hold(self, at_end: AtEnd) -> None:
        reading, writing = os.pipe()
        self.descriptors = (writing,)
        try:
            self._keeper = subprocess.Popen(  # noqa: S603 -- our own program
                KEEPER,
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=() if at_end.share is None else (at_end.share,),
            )
            os.write(writing, msgspec.json.encode(KeeperParams(at_end=at_end)) + b"\n")
        except OSError as error:
            raise EngineError(KEEPER[0], f"cannot be started: {error}") from error
        finally:
            os.close(reading)
