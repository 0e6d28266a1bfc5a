"""The GGUF header reader: what it finds, and that no bytes make it do anything else than refuse."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.engines.embedded.gguf_header import (
    GgufError,
    GgufHeader,
    MoreBytesError,
    parse_header,
)
from mileage.engines.embedded.gguf_tensors import Tensor, tensor_bytes
from tests.support.gguf_builder import GgufTensor, gguf_header, gguf_text

MODEL: dict[str, object] = {
    "general.architecture": "llama",
    "general.type": "model",
    "general.name": "Tiny",
    "general.file_type": 3,
    "llama.context_length": 8192,
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "tokenizer.ggml.tokens": ["a", "b", "c" * 5000],
    "tokenizer.ggml.add_bos_token": False,
    "llama.rope.freq_base": 10000.0,
}


def test_header_of_a_model() -> None:
    header = parse_header(gguf_header(MODEL) + b"data that follows")
    assert header.architecture == "llama"
    assert (header.kind, header.name, header.file_type) == ("model", "Tiny", 3)
    assert (header.context_tokens, header.layers, header.heads, header.kv_heads) == (8192, 30, 9, 3)
    assert (header.key_length, header.value_length) == (64, 64)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"llama.attention.head_count_kv": [0, 4, 8, 4]},
            {"kv_heads": 8},
            id="a figure given per layer counts as its maximum",
        ),
        pytest.param(
            {"llama.attention.key_length": 128, "llama.attention.value_length": 96},
            {"key_length": 128, "value_length": 96},
            id="explicit head lengths win over the width divided by the heads",
        ),
        pytest.param(
            {"general.type": "adapter", "adapter.type": "lora"},
            {"kind": "adapter", "adapter_type": "lora"},
            id="an adapter says so",
        ),
        pytest.param(
            {"llama.pooling_type": 1, "llama.attention.causal": False},
            {"pooling_type": 1, "causal": False},
            id="an embedding model says how it pools",
        ),
        pytest.param({"split.count": 3}, {"split_count": 3}, id="a part knows the number of parts"),
        pytest.param(
            {"llama.context_length": "8192"},
            {"context_tokens": None},
            id="a figure of the wrong type is missing, not guessed",
        ),
        pytest.param(
            {"general.name": "n" * 2000}, {"name": None}, id="an overlong text is not kept"
        ),
    ],
)
def test_header_fields(changes: dict[str, object], expected: dict[str, object]) -> None:
    header = parse_header(gguf_header({**MODEL, **changes}))
    assert {name: getattr(header, name) for name in expected} == expected


def test_missing_figures_are_none() -> None:
    header = parse_header(gguf_header({"general.architecture": "mamba"}))
    assert header.kind == "model"
    for name in ("context_tokens", "layers", "heads", "kv_heads", "key_length", "file_type"):
        assert getattr(header, name) is None


def test_positions_lead_to_the_bytes_they_name() -> None:
    data = gguf_header(MODEL, [("blk.0.attn_q.weight", (64, 2), 0, 0)])
    header = parse_header(data)
    assert header.file_type_at is not None
    assert struct.unpack_from("<I", data, header.file_type_at) == (3,)
    assert data[header.table_at :].startswith(gguf_text("blk.0.attn_q.weight"))


@pytest.mark.parametrize(
    ("tensors", "size"),
    [
        pytest.param([("a", (4, 2), 0, 0)], 32, id="F32: four bytes a value"),
        pytest.param([("a", (64, 3), 3, 0)], 120, id="Q4_1: 20 bytes for 32 values"),
        pytest.param([("a", (256,), 14, 0)], 210, id="Q6_K: 210 bytes for 256 values"),
        pytest.param(
            [("a", (4,), 0, 64), ("b", (4,), 0, 0)], 80, id="the last tensor need not be last"
        ),
        pytest.param([("a", (7, 5), 999, 32)], 37, id="unknown type: a byte a row at least"),
    ],
)
def test_data_end(tensors: list[GgufTensor], size: int) -> None:
    data = gguf_header(None, tensors)
    header = parse_header(data)
    assert header.data_at == -(-len(data) // 32) * 32
    assert header.data_end - header.data_at == size


def test_alignment_of_the_file_counts() -> None:
    metadata = {"general.architecture": "llama", "general.alignment": 4096}
    assert parse_header(gguf_header(metadata, [("a", (1,), 0, 0)])).data_at == 4096


def test_tensor_bytes_of_three_dimensions() -> None:
    assert tensor_bytes(Tensor("experts", (64, 3, 5), 2, 0)) == 2 * 18 * 15


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "begins with", id="nothing"),
        pytest.param(b"PK\x03\x04aaaaaaaaaaaaaaaa", "begins with", id="another format"),
        pytest.param(gguf_header(version=1), "GGUF version 1", id="version 1, long gone"),
        pytest.param(gguf_header(version=4), "GGUF version 4", id="a version of the future"),
        pytest.param(gguf_header(version=3 << 24), "big-endian", id="big-endian file"),
        pytest.param(gguf_header(tensor_count=1 << 60), "claims", id="absurd number of tensors"),
        pytest.param(gguf_header(entry_count=1 << 60), "claims", id="absurd number of entries"),
        pytest.param(gguf_header({}), "general.architecture", id="no architecture"),
        pytest.param(
            gguf_header({"k": struct.pack("<IQ", 8, 1 << 62)}),
            "bytes at byte",
            id="a text longer than any file",
        ),
        pytest.param(
            gguf_header({"k": struct.pack("<IIQ", 9, 0, 1 << 62)}),
            "bytes at byte",
            id="an array longer than any file",
        ),
        pytest.param(
            gguf_header({"k": struct.pack("<IIQQ", 9, 8, 1 << 60, 1 << 62)}),
            "a string of",
            id="an array of texts, one longer than any file",
        ),
        pytest.param(
            gguf_header({"k": struct.pack("<I", 77)}), "unknown metadata type", id="unknown type"
        ),
        pytest.param(
            gguf_header({"k": struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20}),
            "nested deeper",
            id="arrays in arrays in arrays",
        ),
        pytest.param(
            gguf_header(None, [("t", (), 0, 0)]), "0 dimensions", id="a tensor without dimensions"
        ),
        pytest.param(
            gguf_header(None, [("t", (1,) * 9, 0, 0)]), "9 dimensions", id="nine dimensions"
        ),
        pytest.param(
            gguf_header({"general.architecture": "x", "general.alignment": 1 << 30}),
            "general.alignment",
            id="absurd alignment",
        ),
    ],
)
def test_bad_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(GgufError, match=message):
        parse_header(data)


def test_every_prefix_of_a_header_asks_for_more() -> None:
    data = gguf_header(MODEL, [("blk.0.attn_q.weight", (64, 2), 3, 0)])
    for length in range(1, len(data)):
        with pytest.raises(MoreBytesError):
            parse_header(data[:length])
    assert parse_header(data).tensors


def test_claimed_lengths_allocate_nothing() -> None:
    data = gguf_header({"k": struct.pack("<IIQ", 9, 4, 60_000_000)})
    tracemalloc.start()
    try:
        with pytest.raises(MoreBytesError):
            parse_header(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@given(st.binary(max_size=600))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((GgufError, MoreBytesError)):
        parse_header(b"GGUF\x03\x00\x00\x00" + data + bytes(1))


@given(
    st.integers(min_value=0, max_value=400),
    st.binary(min_size=1, max_size=12),
    st.integers(min_value=0, max_value=3),
)
def test_damaged_headers_are_read_or_refused(at: int, damage: bytes, cut: int) -> None:
    data = bytearray(gguf_header(MODEL, [("blk.0.attn_q.weight", (64, 2), 3, 0)]))
    data[at : at + len(damage)] = damage
    try:
        header = parse_header(bytes(data[: len(data) - cut]))
    except (GgufError, MoreBytesError):
        return
    assert isinstance(header, GgufHeader)
    assert header.data_end >= 0
