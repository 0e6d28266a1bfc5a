"""The embedded engine without a child: pauses between starts, and what is refused at once."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from mileage.core.errors import EngineError, ModelFileError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.engine import EmbeddedEngine, EmbeddedStatus, backoff_s
from mileage.engines.embedded.held_port import hold_port


@pytest.mark.parametrize(
    ("failures", "expected_s"),
    [
        pytest.param(0, 0.0, id="none: at once"),
        pytest.param(1, 0.5, id="the first: the configured pause"),
        pytest.param(2, 1.0, id="doubles"),
        pytest.param(5, 8.0, id="and doubles"),
        pytest.param(7, 30.0, id="up to the maximum"),
        pytest.param(10_000, 30.0, id="however many there are"),
    ],
)
def test_backoff(failures: int, expected_s: float) -> None:
    assert backoff_s(failures, 0.5, 30.0) == expected_s


def engine(model: Path, changes: list[EmbeddedStatus]) -> EmbeddedEngine:
    return EmbeddedEngine(
        EmbeddedConfig(), model_path=model, state_dir=model.parent, on_change=changes.append
    )


def test_a_bad_model_is_refused_before_a_child_starts(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"no model")
    changes: list[EmbeddedStatus] = []
    bad = engine(tmp_path / "m.gguf", changes)
    with pytest.raises(ModelFileError, match="is no GGUF file"):
        asyncio.run(bad.start())
    assert changes == []
    assert bad.pid is None


def test_there_is_no_address_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="before it is started"):
        _ = engine(tmp_path / "m.gguf", []).url


def test_each_engine_has_a_key_of_its_own(tmp_path: Path) -> None:
    first, second = (engine(tmp_path / "m.gguf", []).authorization for _ in range(2))
    assert first.startswith("Bearer ")
    assert len(first) > 40
    assert first != second


def test_stopping_what_never_started_does_nothing(tmp_path: Path) -> None:
    asyncio.run(engine(tmp_path / "m.gguf", []).stop(0.0))


def test_a_held_port_is_given_to_no_one_else() -> None:
    holder = hold_port()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(holder.getsockname())
    finally:
        holder.close()
