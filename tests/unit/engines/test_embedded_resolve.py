"""From embedded.model to a checked file, and the name it is served by."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, ModelFileError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.resolve import resolve_model, served_name
from tests.support.gguf_builder import gguf

LLAMA: dict[str, object] = {"general.architecture": "llama", "llama.context_length": 4096}


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


@pytest.mark.parametrize(
    ("config", "name"),
    [
        pytest.param(EmbeddedConfig(), "smollm2", id="the bundled model"),
        pytest.param(EmbeddedConfig(model="/m/Qwen3-0.6B.Q4.gguf"), "Qwen3-0.6B.Q4", id="a path"),
        pytest.param(EmbeddedConfig(model="hf:o/r@v/d/F-Q8.gguf"), "F-Q8", id="a hub id"),
        pytest.param(EmbeddedConfig(served_name="mine"), "mine", id="as configured"),
    ],
)
def test_served_name(config: EmbeddedConfig, name: str) -> None:
    assert served_name(config) == name


def test_a_path_is_taken_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf(LLAMA))
    monkeypatch.setenv("HOME", str(tmp_path))
    config = EmbeddedConfig(model="~/m.gguf")
    assert resolve_model(config, progress=no_progress, environ={}) == tmp_path / "m.gguf"


def test_options_are_checked_against_the_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LLAMA))
    config = EmbeddedConfig(model=str(path), context_tokens=5000)
    with pytest.raises(ConfigError, match="at most 4096"):
        resolve_model(config, progress=no_progress, environ={})


@pytest.mark.parametrize(
    ("model", "lora", "message"),
    [
        pytest.param("none.gguf", (), r"none\.gguf: does not exist", id="no such model"),
        pytest.param("m.gguf", ("a.gguf",), r"a\.gguf: does not exist", id="no such adapter"),
    ],
)
def test_missing_files_are_named(
    tmp_path: Path, model: str, lora: tuple[str, ...], message: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf(LLAMA))
    config = EmbeddedConfig(
        model=str(tmp_path / model), lora=tuple(str(tmp_path / name) for name in lora)
    )
    with pytest.raises(ModelFileError, match=message):
        resolve_model(config, progress=no_progress, environ={})
