"""A fault is told by its kind and place; what its message quotes stays where it is."""

from __future__ import annotations

import logging

import pytest

from mileage.vllm_plugin.failure import failure_of, log_failure

PROMPT = "my secret prompt"


def fault() -> Exception:
    """One that quotes a prompt."""
    try:
        raise KeyError(PROMPT)
    except KeyError as error:
        return error


def test_kind_and_place_without_the_message(caplog: pytest.LogCaptureFixture) -> None:
    error = fault()
    told = failure_of(error)
    assert told.startswith("KeyError at test_failure.py:")
    assert told.endswith("(fault)")
    with caplog.at_level(logging.ERROR, "vllm.mileage"):
        log_failure(logging.getLogger("vllm.mileage"), "it failed", error)
    assert told in caplog.text
    assert PROMPT not in told + caplog.text
    assert caplog.records[0].exc_info is None


def test_one_that_was_never_raised_has_no_place() -> None:
    assert failure_of(ValueError(PROMPT)) == "ValueError"
