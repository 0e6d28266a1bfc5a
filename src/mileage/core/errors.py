"""The error tree: every error that Mileage raises on purpose.

    MileageError
    ├── ConfigError(key, value, expected)      bad configuration: the key and what it should be
    ├── EngineError(engine, message)           an engine, or the way to it, failed
    │   ├── FetchError(url, kind, message)     a control request got no answer (wire.fetch)
    │   └── ModelFileError(path, message)      a model file is missing, damaged or no GGUF
    ├── FileError(path, message)               a file to be made cannot be written or fetched
    ├── LedgerError(path, message)             the request log or store cannot be read or written
    └── TraceError(path, line, message)        a trace or log file has a bad record

A refusal of a request is not an error but a value: see `mileage.core.actions.Reject`.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "EngineError",
    "FileError",
    "LedgerError",
    "MileageError",
    "ModelFileError",
    "TraceError",
]


class MileageError(Exception):
    """Base of every error that Mileage raises on purpose."""


class ConfigError(MileageError):
    """A configuration value is not usable; names the key, the value and what was expected.

    `place` is where it was written, where that is known: FILE:LINE, or a variable's name.
    """

    def __init__(self, key: str, value: object, expected: str, *, place: str | None = None) -> None:
        self.key, self.value, self.expected, self.place = key, value, expected, place
        written = f"{place}: " if place is not None else ""
        super().__init__(f"{written}{key}: got {value!r}, expected {expected}")

    def named(self, key: str) -> ConfigError:
        """The same error under the name that its user knows the key by."""
        return ConfigError(key, self.value, self.expected, place=self.place)


class EngineError(MileageError):
    """An engine, or the connection to it, failed."""

    def __init__(self, engine: str, message: str) -> None:
        self.engine, self.message = engine, message
        super().__init__(f"{engine}: {message}")


class ModelFileError(EngineError):
    """A model file is missing, damaged or not of a format that the engine reads."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(path, message)


class FileError(MileageError):
    """A file that is to be made cannot be written, or fetched, as a whole; so it is not there."""

    def __init__(self, path: str, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(f"{path}: {message}")


class LedgerError(MileageError):
    """The request log or its store cannot be read or written."""

    def __init__(self, path: str, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(f"{path}: {message}")


class TraceError(MileageError):
    """A trace or log file has a bad record; names the file and the line (or record) number.

    Lines count from 1; 0 is for what is not in one line, and is left out of the message.
    """

    def __init__(self, path: str, line: int, message: str) -> None:
        self.path, self.line, self.message = path, line, message
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
