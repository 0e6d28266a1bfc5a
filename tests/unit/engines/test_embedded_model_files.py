"""Checks of model files: each bad file is refused with what is wrong about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import ConfigError, ModelFileError
from mileage.engines.config import EmbeddedConfig
from mileage.engines.embedded.gguf_header import parse_header
from mileage.engines.embedded.model_files import (
    check_adapter,
    check_limits,
    check_model,
    kv_bytes,
    read_header,
    split_parts,
)
from tests.support.gguf_builder import gguf, gguf_header

LLAMA: dict[str, object] = {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
}
ADAPTER: dict[str, object] = {
    "general.architecture": "llama",
    "general.type": "adapter",
    "adapter.type": "lora",
}
ONE_TENSOR = [("blk.0.attn_q.weight", (64, 4), 0, 0)]


def written(directory: Path, content: bytes, name: str = "model.gguf") -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


def test_a_whole_file_is_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, gguf(LLAMA, ONE_TENSOR, bytes(1024)))
    assert check_model(path).layers == 30


def test_a_header_larger_than_the_first_read_is_accepted(tmp_path: Path) -> None:
    vocabulary = ["x" * 1000] * 6000
    path = written(tmp_path, gguf({**LLAMA, "tokenizer.ggml.tokens": vocabulary}))
    assert read_header(path).layers == 30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty file"),
        pytest.param(b"hello " * 100, "is no GGUF file: begins with b'hell'", id="some text"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer", id="LFS pointer"
        ),
        pytest.param(b"PK\x03\x04" + bytes(100), "a zip archive", id="a wheel or checkpoint"),
        pytest.param(b"<!DOCTYPE html><html>", "HTML", id="a saved error page"),
        pytest.param(b'{"error": "not found"}', "JSON", id="a saved error message"),
        pytest.param(gguf(LLAMA)[:100], "its header goes on past its 100 bytes", id="cut header"),
        pytest.param(gguf_header()[:3], "goes on past its 3 bytes", id="three bytes"),
        pytest.param(
            gguf(LLAMA, ONE_TENSOR, bytes(1000)), "is truncated: .* bytes of the", id="cut data"
        ),
        pytest.param(gguf(ADAPTER), "is a LoRA adapter, expected a model", id="an adapter"),
        pytest.param(gguf({**LLAMA, "general.type": "mmproj"}), "projector", id="a projector"),
        pytest.param(gguf({**LLAMA, "split.count": 2}), "one of 2 parts", id="a lone part"),
    ],
)
def test_bad_model_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ModelFileError, match=message) as caught:
        check_model(path)
    assert caught.value.path == str(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.gguf: does not exist, expected a GGUF file"):
        read_header(tmp_path / "gone.gguf")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a directory"):
        read_header(tmp_path)


def test_an_unreadable_path_gives_the_systems_reason(tmp_path: Path) -> None:
    inside_a_file = written(tmp_path, b"x") / "model.gguf"
    with pytest.raises(ModelFileError, match="cannot be read: Not a directory"):
        read_header(inside_a_file)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param("m.gguf", ("m.gguf",), id="not split"),
        pytest.param(
            "m-00001-of-00002.gguf", ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), id="two"
        ),
        pytest.param("m-00001-of-00000.gguf", ("m-00001-of-00000.gguf",), id="nonsense count"),
    ],
)
def test_split_parts(name: str, parts: tuple[str, ...]) -> None:
    assert split_parts(name) == parts


def test_a_split_model_needs_all_its_parts(tmp_path: Path) -> None:
    first = written(tmp_path, gguf({**LLAMA, "split.count": 2}), "m-00001-of-00002.gguf")
    with pytest.raises(ModelFileError, match=r"m-00002-of-00002\.gguf: does not exist"):
        check_model(first)
    second = written(tmp_path, gguf({**LLAMA, "split.count": 2}), "m-00002-of-00002.gguf")
    assert check_model(first).split_count == 2
    with pytest.raises(ModelFileError, match="give the first, m-00001-of-00002"):
        check_model(second)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param(LLAMA, "is no LoRA adapter but a model", id="a model as an adapter"),
        pytest.param(
            {**ADAPTER, "general.architecture": "qwen2"},
            "is an adapter for qwen2, the model is llama",
            id="an adapter of another architecture",
        ),
    ],
)
def test_bad_adapters(tmp_path: Path, metadata: dict[str, object], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        check_adapter(written(tmp_path, gguf(metadata)), parse_header(gguf_header(LLAMA)))


def test_a_fitting_adapter_is_accepted(tmp_path: Path) -> None:
    check_adapter(written(tmp_path, gguf(ADAPTER)), parse_header(gguf_header(LLAMA)))


def test_context_beyond_the_models_is_refused() -> None:
    header = parse_header(gguf_header(LLAMA))
    check_limits(EmbeddedConfig(context_tokens=8192), header)
    with pytest.raises(ConfigError, match="at most 8192") as caught:
        check_limits(EmbeddedConfig(context_tokens=8193), header)
    assert caught.value.key == "embedded.context_tokens"


def test_cache_types_in_blocks_need_heads_that_fill_them() -> None:
    header = parse_header(gguf_header({**LLAMA, "llama.attention.key_length": 80}))
    with pytest.raises(ConfigError, match="heads of 80 values") as caught:
        check_limits(EmbeddedConfig(cache_type_k="q8_0"), header)
    assert caught.value.key == "embedded.cache_type_k"
    check_limits(EmbeddedConfig(cache_type_v="q8_0"), header)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(EmbeddedConfig(slots=8, context_tokens=2048), 377_487_360, id="f16"),
        pytest.param(
            EmbeddedConfig(slots=8, context_tokens=2048, cache_type_k="q8_0", cache_type_v="q4_0"),
            153_354_240,
            id="mixed types",
        ),
    ],
)
def test_kv_bytes(config: EmbeddedConfig, expected: int) -> None:
    # 30 layers x 3 heads x 64 values, for keys and for values, of 16,384 tokens
    assert kv_bytes(config, parse_header(gguf_header(LLAMA))) == expected


def test_kv_bytes_are_unknown_where_the_header_is_silent() -> None:
    header = parse_header(gguf_header({"general.architecture": "mamba"}))
    assert kv_bytes(EmbeddedConfig(), header) is None


def test_the_vocabulary_is_not_kept_in_memory(tmp_path: Path) -> None:
    path = written(tmp_path, gguf({**LLAMA, "tokenizer.ggml.merges": ["merge"] * 10}))
    assert "merge" not in repr(read_header(path))
