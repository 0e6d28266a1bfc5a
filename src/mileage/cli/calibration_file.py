"""CalibrationFile: what `mileage plan calibrate` writes, and `mileage simulate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mileage.core.errors import ConfigError
from mileage.costmodel.calibration import Calibration

__all__ = ["CalibrationFile", "read_calibration"]

_FILE_BYTES_MAX: Final = 1 << 20


class CalibrationFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A calibration, and what it is of: another card or engine differs in other ways."""

    model: str
    gpu: str
    """Name in the catalogue."""
    engine: str
    layout: dict[str, int | str | float]
    """How the model was laid out, for the record."""
    calibration: Calibration


def read_calibration(path: Path, *, key: str = "--calibration") -> CalibrationFile:
    """The file. Raises ConfigError, of `key`, for anything else."""
    expected = "a file of `mileage plan calibrate`"
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_FILE_BYTES_MAX), type=CalibrationFile)
    except OSError as error:
        raise ConfigError(key, str(path), f"{expected} ({error.strerror or error})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(key, str(path), f"{expected}: {error}") from None
