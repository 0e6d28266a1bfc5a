"""ExperimentFile: how far an experiment had come, kept in the state directory over a restart."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from mileage.core.errors import MileageError
from mileage.gateway.admin.experiment import ExperimentRecord

__all__ = ["ExperimentFile"]

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(ExperimentRecord).decode


class ExperimentFile:
    """The record as JSON, whole or as it was before: a gateway may be killed at any moment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> ExperimentRecord | None:
        """The record that was saved last; one that cannot be read is as none, and logged."""
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, MileageError) as error:
            _log.error("%s: the experiment's state cannot be read: %s", self._path, error)
            return None

    def save(self, record: ExperimentRecord) -> None:
        """Keep it; raises OSError where that fails."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._path.with_name(f"{self._path.name}.new")
        data = msgspec.json.encode(record)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
