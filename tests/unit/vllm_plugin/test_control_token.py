"""Where the control's token comes from, and which are none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mileage.vllm_plugin.control_token import control_token


def test_the_token_is_the_variables_or_the_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-a-file-0123456789\n")
    named = {"MILEAGE_CONTROL_TOKEN_FILE": str(file)}
    assert control_token(named) == b"of-a-file-0123456789"
    both = {**named, "MILEAGE_CONTROL_TOKEN": "of-a-variable-0123456789"}
    assert control_token(both) == b"of-a-variable-0123456789"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        pytest.param({}, "neither MILEAGE_CONTROL_TOKEN", id="nothing"),
        pytest.param({"MILEAGE_CONTROL_TOKEN": "short"}, "at least 16", id="too short"),
        pytest.param({"MILEAGE_CONTROL_TOKEN": "ü" * 20}, "ASCII", id="not ASCII"),
        pytest.param({"MILEAGE_CONTROL_TOKEN": " " * 20}, "at least 16", id="blank"),
        pytest.param(
            {"MILEAGE_CONTROL_TOKEN_FILE": "/no/such/file"}, "/no/such/file", id="no such file"
        ),
    ],
)
def test_without_a_usable_token_the_log_says_why(
    environment: dict[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "vllm.mileage"):
        assert control_token(environment) is None
    assert told in caplog.text
