"""Logs: JSON lines that anything can read, and settings that a worker's command line holds."""

from __future__ import annotations

import logging
import sys

import msgspec
import pytest

from mileage.cli.logs import JsonLines, log_settings
from mileage.core.errors import ConfigError


def line(record: logging.LogRecord) -> dict[str, object]:
    text = JsonLines().format(record)
    assert "\n" not in text
    found: dict[str, object] = msgspec.json.decode(text)
    return found


def test_a_line_is_one_document() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "f", 1, "is %s\n%d", ('"down"', 3), None)
    record.created, record.process = 1_793_491_200.25, 77
    assert line(record) == {
        "at_utc": "2026-11-01T00:00:00.250Z",
        "level": "warning",
        "logger": "a.b",
        "message": 'is "down"\n3',
        "process": 77,
    }


def test_an_error_has_its_trace() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    assert "ValueError: odd" in str(line(record)["error"])


@pytest.mark.parametrize(
    ("level", "form", "settings"), [("info", "text", "info"), ("error", "json", "error/json")]
)
def test_settings_are_one_word(level: str, form: str, settings: str) -> None:
    assert log_settings(level, form) == settings


@pytest.mark.parametrize(
    ("level", "form", "key"), [("loud", "text", "--log-level"), ("info", "xml", "--log-format")]
)
def test_settings_that_there_are_not(level: str, form: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        log_settings(level, form)
