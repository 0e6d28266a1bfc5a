"""StepTap: tells the ledger of every step of a vLLM engine, and what each request had of it."""

from __future__ import annotations

import logging
import os
import re
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from mileage.ledger.step_record import lost_record, row_record
from mileage.vllm_plugin.gateway_names import GatewayNames
from mileage.vllm_plugin.record_channel import ChannelLimits, RecordChannel
from mileage.vllm_plugin.step_uses import StepUses

__all__ = ["METERING_OBSERVER", "StepTap", "TapSettings", "tap_settings", "why_not_metered"]

METERING_OBSERVER: Final = "metering"
"""Its name among the engine's observers."""
_log = logging.getLogger("vllm.mileage")


class TapSettings(NamedTuple):
    """Where steps go, and under which name."""

    directory: Path
    replica: str
    """As the gateway calls this engine."""


def tap_settings(environ: Mapping[str, str]) -> TapSettings | str:
    """What MILEAGE_STEPS_DIR and MILEAGE_REPLICA say, or why no step is told."""
    directory, replica = environ.get("MILEAGE_STEPS_DIR"), environ.get("MILEAGE_REPLICA")
    if not directory:
        return "MILEAGE_STEPS_DIR is not set: the directory `steps` beside the gateway's ledger"
    if not replica:
        return "MILEAGE_REPLICA is not set: the name that the gateway has for this engine"
    return TapSettings(Path(directory), replica)


def why_not_metered(vllm_config: Any) -> str | None:
    """Why the steps of an engine of this configuration cannot be told; None: they can."""
    parallel = getattr(vllm_config, "parallel_config", None)
    ranks = getattr(parallel, "data_parallel_size", 1)
    if ranks > 1 and not getattr(parallel, "data_parallel_external_lb", False):
        return f"{ranks} data-parallel ranks behind one address: their steps overlap"
    return None


class StepTap:
    """A StepObserver: it turns each step into a record, and leaves writing to a thread.

    Steps do not overlap, whatever the clocks do: one begins when the one before ended, at the
    earliest. Where batches are in flight at once (asynchronous scheduling, pipeline stages) a
    step's time is thus from the end of the one before to its own: all time in which the engine
    computed, once. A step that computed nothing is not told.
    """

    def __init__(self, settings: TapSettings, limits: ChannelLimits | None = None) -> None:
        self._replica = settings.replica
        self._names = GatewayNames(settings.directory)
        self._uses = StepUses(self._id_of)
        self._ended_ns = 0
        self.steps_total = 0
        self.busy_ns = 0
        """The time of all steps that were told."""
        self.channel = RecordChannel(
            settings.directory,
            re.sub(r"[^A-Za-z0-9._-]", "_", settings.replica),
            ".steps",
            partial(lost_record, settings.replica),
            limits,
            tick=self._names.look,
        )
        self.channel.start()

    @classmethod
    def of(cls, core: Any) -> StepTap:
        """For an engine, by the environment. Raises ValueError with why it is not metered."""
        settings = tap_settings(os.environ)
        if isinstance(settings, str):
            raise ValueError(settings)
        if (why_not := why_not_metered(core.vllm_config)) is not None:
            raise ValueError(why_not)
        _log.info("mileage tells steps of %s in %s", settings.replica, settings.directory)
        return cls(settings)

    def before_step(self, core: Any, now_s: float) -> None:
        """Nothing is to be seen before."""

    def after_step(
        self,
        core: Any,
        scheduler_output: Any,
        model_output: Any,
        started_ns: int,
        duration_ns: int,
        cpu_ns: int,
    ) -> None:
        """Tell of the step."""
        rows = self._uses.rows(scheduler_output)
        if not rows:
            return
        ended_ns = started_ns + duration_ns
        began_ns = max(started_ns, self._ended_ns)
        duration_ns = max(0, ended_ns - began_ns)
        self._ended_ns = began_ns + duration_ns
        self.steps_total += 1
        self.busy_ns += duration_ns
        record = row_record(self._replica, began_ns, duration_ns, rows)
        self.channel.put(record, began_ns, self._ended_ns)

    def _id_of(self, name: str) -> int:
        """The gateway's id; below 0 for a request that did not come through it."""
        request_id = self._names.id_of(name)
        return -1 - zlib.crc32(name.encode()) if request_id is None else request_id
