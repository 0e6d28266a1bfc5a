"""The identity of a gateway: made once, kept, and refused where it is none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mileage.core.errors import LedgerError
from mileage.storage.gateway_identity import gateway_identity


def test_it_is_made_once_and_kept_for_its_owner(tmp_path: Path) -> None:
    first = gateway_identity(tmp_path / "ledger")
    assert gateway_identity(tmp_path / "ledger") == first
    assert gateway_identity(tmp_path / "other") != first
    (file,) = (tmp_path / "ledger").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "me", "é" * 32])
def test_a_file_that_holds_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "gateway.id").write_text(content)
    with pytest.raises(LedgerError, match="32 hexadecimal digits"):
        gateway_identity(tmp_path)
