"""Files of engine steps, one record (`mileage.ledger.step_record`) after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from mileage.core.errors import ConfigError, TraceError
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.step_record import STEP_BYTES_MAX, STEP_LENGTH

__all__ = ["read_steps"]

_decode: Final = msgspec.msgpack.Decoder(EngineStep).decode


def read_steps(path: Path, *, key: str = "--steps") -> Iterator[EngineStep]:
    """The steps of a file, one after the other; what is cut off at its end is left out, as is
    what only says that steps were lost.

    Raises ConfigError, of `key`, where it cannot be opened, and TraceError, with the step's number,
    for what is none.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(key, str(path), f"a file of steps: {error.strerror}") from error
    with file:
        yield from _steps(file, str(path))


def _steps(file: BinaryIO, path: str) -> Iterator[EngineStep]:
    number = 0
    while len(head := file.read(STEP_LENGTH.size)) == STEP_LENGTH.size:
        number += 1
        (length,) = STEP_LENGTH.unpack(head)
        if length > STEP_BYTES_MAX:
            raise TraceError(path, number, f"no engine step: {length} bytes long")
        payload = file.read(length)
        if len(payload) < length:
            return
        try:
            step = _decode(payload)
        except msgspec.DecodeError as error:
            raise TraceError(path, number, f"no engine step: {error}") from error
        if not step.lost_steps:
            yield step
