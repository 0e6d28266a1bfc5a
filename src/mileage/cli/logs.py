"""Logs on stderr: lines for people, or a JSON document each."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from typing import Any, Final

import msgspec

from mileage.core.errors import ConfigError

__all__ = ["LOG_FORMATS", "JsonLines", "log_settings", "set_up_logs"]

LOG_FORMATS: Final = ("text", "json")
_LEVELS: Final = ("debug", "info", "warning", "error")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One JSON document a line: at_utc, level, logger, message, process, and the error's trace."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        line: dict[str, Any] = {
            "at_utc": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def log_settings(level: str, form: str) -> str:
    """Both as one word, for the command line of a worker: `warning` or `warning/json`.

    Raises ConfigError, of --log-level or --log-format.
    """
    if level not in _LEVELS:
        raise ConfigError("--log-level", level, "debug, info, warning or error")
    if form not in LOG_FORMATS:
        raise ConfigError("--log-format", form, " or ".join(LOG_FORMATS))
    return level if form == "text" else f"{level}/{form}"


def set_up_logs(settings: str) -> None:
    """Log to stderr from now on, as `log_settings` says."""
    level, _, form = settings.partition("/")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
