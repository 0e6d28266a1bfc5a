"""Conversion of weights: which tensors, to what values, once."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, quants

from mileage.core.errors import ConfigError, EngineError
from mileage.engines.embedded.gguf_tensors import Tensor
from mileage.engines.embedded.model_files import check_model, read_header
from mileage.engines.embedded.weights import WeightType, convert_weights, new_types
from tests.support.gguf_builder import GgufTensor, gguf

F32, F16, Q4_0, Q4_1, Q8_0, Q6_K = 0, 1, 2, 3, 8, 14


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None: ...


@pytest.mark.parametrize(
    ("tensor", "target", "expected"),
    [
        pytest.param(
            Tensor("blk.3.attn_q.weight", (64, 64), Q4_1, 0), "q4_0", Q4_0, id="attention"
        ),
        pytest.param(
            Tensor("blk.3.ffn_down.weight", (64, 64), F16, 0), "q8_0", Q8_0, id="feed-forward"
        ),
        pytest.param(
            Tensor("blk.0.ffn_down_exps.weight", (64, 8, 4), Q6_K, 0), "q4_0", Q4_0, id="experts"
        ),
        pytest.param(
            Tensor("blk.0.ffn_gate_inp.weight", (64, 8), F32, 0), "q4_0", None, id="not the router"
        ),
        pytest.param(
            Tensor("blk.0.attn_norm.weight", (64,), F32, 0), "q4_0", None, id="not a vector"
        ),
        pytest.param(
            Tensor("blk.0.attn_q.weight", (80, 8), F16, 0), "q4_0", None, id="not ragged rows"
        ),
        pytest.param(
            Tensor("blk.0.attn_q.weight", (64, 8), Q4_0, 0), "q4_0", None, id="not what is so"
        ),
        pytest.param(
            Tensor("blk.0.attn_q.weight", (256, 8), 19, 0), "q4_0", None, id="not unknown types"
        ),
        pytest.param(
            Tensor("token_embd.weight", (64, 99), F16, 0), "q4_0", Q8_0, id="vocabulary: to Q8_0"
        ),
        pytest.param(
            Tensor("output.weight", (256, 99), Q6_K, 0), "q4_0", None, id="vocabulary: kept"
        ),
        pytest.param(Tensor("rope.weight", (64, 64), F32, 0), "q4_0", None, id="not others"),
    ],
)
def test_new_types(tensor: Tensor, target: WeightType, expected: int | None) -> None:
    assert new_types([tensor], target).get(tensor.name) == expected


def model(directory: Path, rows: int = 6) -> tuple[Path, np.ndarray]:
    """A model of three tensors, and the values of its one matrix."""
    values = np.random.default_rng(7).normal(size=(rows, 64)).astype(np.float32)
    matrix = quants.quantize(values, GGMLQuantizationType.Q4_1)
    norm = np.arange(5, dtype=np.float32)
    tail = np.arange(64, dtype=np.float16)
    matrix_at = 32  # 20 bytes of the norm, padded
    tail_at = matrix_at + -(-matrix.nbytes // 32) * 32
    tensors: list[GgufTensor] = [
        ("blk.0.attn_norm.weight", (5,), F32, 0),
        ("blk.0.attn_q.weight", (64, rows), Q4_1, matrix_at),
        ("rope.weight", (64,), F16, tail_at),
    ]
    data = norm.tobytes() + bytes(12) + matrix.tobytes()
    data += bytes(tail_at - len(data)) + tail.tobytes()
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.file_type": 3,
        "tokenizer.ggml.tokens": ["one", "two"],
    }
    path = directory / "tiny.gguf"
    path.write_bytes(gguf(metadata, tensors, data))
    return path, quants.dequantize(matrix, GGMLQuantizationType.Q4_1)


@pytest.mark.parametrize(
    ("target", "tensor_type", "file_type", "error_max"),
    [
        pytest.param("q4_0", GGMLQuantizationType.Q4_0, 2, 0.25, id="four bits: coarse"),
        pytest.param("q8_0", GGMLQuantizationType.Q8_0, 7, 0.02, id="eight bits: close"),
    ],
)
def test_a_conversion_changes_the_weights_alone(
    tmp_path: Path,
    target: WeightType,
    tensor_type: GGMLQuantizationType,
    file_type: int,
    error_max: float,
) -> None:
    path, values = model(tmp_path)
    converted = convert_weights(
        path, check_model(path), target, cache=tmp_path / "cache", progress=no_progress
    )
    old, new = GGUFReader(path), GGUFReader(converted)
    assert new.fields["general.file_type"].contents() == file_type
    assert new.fields["tokenizer.ggml.tokens"].contents() == ["one", "two"]
    norm, matrix, tail = new.tensors
    assert matrix.tensor_type == tensor_type
    assert np.abs(quants.dequantize(matrix.data, tensor_type) - values).max() < error_max
    assert norm.data.tobytes() == old.tensors[0].data.tobytes()
    assert tail.data.tobytes() == old.tensors[2].data.tobytes()
    assert converted.stat().st_size == read_header(converted).data_end


def test_a_matrix_larger_than_a_step_is_converted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mileage.engines.embedded.weights._CHUNK_VALUES", 128)
    path, values = model(tmp_path, rows=9)
    converted = convert_weights(
        path, check_model(path), "q8_0", cache=tmp_path, progress=no_progress
    )
    data = GGUFReader(converted).tensors[1].data
    assert np.abs(quants.dequantize(data, GGMLQuantizationType.Q8_0) - values).max() < 0.02


def test_a_file_is_converted_once_per_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = model(tmp_path)
    header = check_model(path)

    def convert() -> Path:
        return convert_weights(path, header, "q4_0", cache=tmp_path, progress=no_progress)

    first = convert()
    monkeypatch.setitem(sys.modules, "gguf", None)  # a second conversion would fail
    assert convert() == first
    path.write_bytes(path.read_bytes() + bytes(32))
    with pytest.raises(EngineError, match="package gguf"):
        convert()


def test_a_model_that_is_so_already_is_taken_as_it_is(tmp_path: Path) -> None:
    path, _ = model(tmp_path)
    converted = convert_weights(
        path, check_model(path), "q4_0", cache=tmp_path, progress=no_progress
    )
    again = convert_weights(
        converted, check_model(converted), "q4_0", cache=tmp_path, progress=no_progress
    )
    assert again == converted


def test_without_the_package_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    path, _ = model(tmp_path)
    with pytest.raises(EngineError, match=r"pip install 'mileage\[convert\]'"):
        convert_weights(path, check_model(path), "q4_0", cache=tmp_path, progress=no_progress)


def test_a_model_in_parts_is_not_converted(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(gguf({"general.architecture": "llama", "split.count": 2}))
    with pytest.raises(ConfigError, match="as-is for a model in several files") as caught:
        convert_weights(path, read_header(path), "q4_0", cache=tmp_path, progress=no_progress)
    assert caught.value.key == "embedded.weights"
