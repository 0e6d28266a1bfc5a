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
from mileage.engines.launch.mps import start_mps
from mileage.engines.launch.settings import MpsSettings

__all__ = ["MpsHold"]

_CLOSE_S: Final = 30.0


class MpsHold:
    """Others may share the daemon, so that it is not ended while the engine is only restarted.

    If it was started here, a keeper that has no engine ends it when its standard input closes. The
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
        found = start_mps(**msgspec.structs.asdict(self._settings))
        if found.started and self._keeper is None:
            self._hold(found.at_end)
        self._settings = msgspec.structs.replace(
            self._settings,
            pipe_directory=found.pipe_directory,
            log_directory=found.log_directory,
        )
        return found.environment

    def close(self) -> None:
        """Have it ended, if it was started here, and wait for that."""
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
            )
            os.write(writing, msgspec.json.encode(KeeperParams(at_end=at_end)) + b"\n")
        except OSError as error:
            raise EngineError(KEEPER[0], f"cannot be started: {error}") from error
        finally:
            os.close(reading)
