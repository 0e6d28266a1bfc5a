"""What --model means: names, configurations, and GGUF files with their stored precision."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.model_source import model_source
from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError
from tests.support.gguf_builder import GgufTensor, gguf_header

METADATA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 4,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 256,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
}
F16, Q4_0, Q8_0 = 1, 2, 8
EMBEDDING, BYTES = (64, 1024), {F16: 2.0, Q4_0: 18 / 32, Q8_0: 34 / 32}


def write(path: Path, tensors: dict[str, int], metadata: dict[str, object] | None = None) -> Path:
    """A file with those tensors, each of the embedding's shape, by their types."""
    found: list[GgufTensor] = []
    offset = 0
    for name, kind in tensors.items():
        found.append((name, EMBEDDING, kind, offset))
        offset += int(64 * 1024 * BYTES[kind])
    data = gguf_header({**METADATA, **(metadata or {})}, found)
    path.write_bytes(data + bytes(32 + offset))
    return path


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        pytest.param(F16, "bf16", id="half precision"),
        pytest.param(Q8_0, "int8", id="bytes"),
        pytest.param(Q4_0, "int4", id="four bits"),
    ],
)
def test_a_gguf_file_has_shape_and_precision(tmp_path: Path, kind: int, weights: str) -> None:
    path = write(tmp_path / "tiny.gguf", {"token_embd.weight": kind, "output.weight": kind})
    source = model_source(str(path))
    found = source.architecture
    assert (found.name, found.layers, found.hidden, found.kv_heads) == ("Tiny", 4, 64, 2)
    assert (found.vocab, found.tied_embeddings) == (1024, False), "of the tensors"
    assert source.weights == weights
    assert source.precision(None) == weights
    assert source.precision("fp8") == "fp8", "as asked for"


def test_without_an_output_matrix_the_embedding_is_it(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", {"token_embd.weight": F16})
    assert model_source(str(path)).architecture.tied_embeddings


def test_the_tensors_of_a_split_file_are_in_all_of_its_parts(tmp_path: Path) -> None:
    first = write(
        tmp_path / "tiny-00001-of-00002.gguf", {"token_embd.weight": Q8_0}, {"split.count": 2}
    )
    write(tmp_path / "tiny-00002-of-00002.gguf", {"output.weight": Q8_0})
    source = model_source(str(first))
    assert not source.architecture.tied_embeddings
    assert source.weights == "int8"


def test_other_models_are_in_half_precision_where_nothing_is_said() -> None:
    source = model_source("llama-3.1-8b")
    assert (source.precision(None), source.precision("int4")) == ("bf16", "int4")


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        pytest.param({"general.type": "adapter"}, "LoRA adapter", id="an adapter"),
        pytest.param({"general.architecture": "mamba"}, "general.architecture", id="not known"),
    ],
)
def test_a_file_that_is_no_such_model_is_named(
    tmp_path: Path, metadata: dict[str, object], told: str
) -> None:
    path = write(tmp_path / "tiny.gguf", {"token_embd.weight": F16}, metadata)
    with pytest.raises(ConfigError, match=told) as caught:
        model_source(str(path))
    assert str(path) in str(caught.value)


def test_a_file_that_is_missing_or_cut_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.gguf.*does not exist"):
        model_source(str(tmp_path / "gone.gguf"))
    path = write(tmp_path / "tiny.gguf", {"token_embd.weight": F16})
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="is truncated"):
        model_source(str(path))


def test_commands_take_one(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", {"token_embd.weight": Q4_0})
    trace = ("--trace", "synthetic:rate=5,duration=5s,prompt=10,output=5")
    for command in (("simulate", *trace), ("roofline",)):
        result = CliRunner().invoke(app, [*command, "--model", str(path), "--gpu", "t4"])
        assert result.exit_code == 0, result.output
        assert "Tiny" in result.stdout
