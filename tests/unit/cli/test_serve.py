"""What `mileage serve` prints when it is ready: the admin token to a terminal only."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.cli.config import Config
from mileage.cli.listening import Listening
from mileage.cli.serve import _dashboard
from mileage.gateway.admin.token import resolve_token, token_path

ADDRESS = "http://127.0.0.1:8081"
TOKEN = "a/token+of#some?length"


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("admin", "terminal", "expected"),
    [
        pytest.param({}, True, f"{ADDRESS}/?token=MADE", id="terminal"),
        pytest.param({}, False, f"{ADDRESS}  (token: in FILE)", id="log"),
        pytest.param(
            {"token": TOKEN},
            True,
            f"{ADDRESS}/?token=a%2Ftoken%2Bof%23some%3Flength",
            id="terminal, token of one's own",
        ),
        pytest.param({"token": TOKEN}, False, f"{ADDRESS}  (token: as configured)", id="log, too"),
    ],
)
def test_the_token_is_shown_to_a_terminal_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    admin: dict[str, Any],
    terminal: bool,
    expected: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stderr", Stream(terminal))
    config = msgspec.convert({"admin": admin}, Config)
    made = resolve_token(config.admin, tmp_path / "mileage")
    file = token_path(config.admin, tmp_path / "mileage")
    listening = Listening(
        url="http://127.0.0.1:8080/v1",
        admin_url=ADDRESS,
        admin_token_file=str(file) if file else None,
        ledger="ledger",
        models=[],
        pid=1,
        worker_pids=[],
        engine_pids=[],
    )
    assert _dashboard(config, listening) == expected.replace("MADE", made).replace(
        "FILE", str(file)
    )
