"""llama.cpp's blocks: to the byte what the gguf package makes, which follows ggml-quants.c."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from mileage.quant.formats import Values
from mileage.quant.ggml import GgmlType, fake_ggml, packed, unpacked

KINDS: tuple[GgmlType, ...] = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
BYTES = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18}


def _values() -> Values:
    """Rows of many magnitudes, with zeros, equal numbers, one sign, halves of a step."""
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((96, 128)) * np.exp(3.0 * generator.standard_normal((96, 1)))
    rows[0] = 0.0
    rows[1] = 5.0
    rows[2] = -np.abs(rows[2])
    rows[3] = np.abs(rows[3])
    rows[4] = np.tile(np.arange(-16, 16) / 2.0, 4)
    rows[5, 64:] = 0.0
    return rows.astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_gguf_package(kind: GgmlType) -> None:
    values = _values()
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.upper()])

    found = packed(values, kind)

    assert found.shape == (96 * 4, BYTES[kind])
    assert (found == expected.reshape(found.shape)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_gguf_package(kind: GgmlType) -> None:
    blocks = packed(_values(), kind)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind.upper()])

    assert unpacked(blocks, kind).tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_heads_keep_their_shape(kind: GgmlType) -> None:
    values = _values().reshape(48, 2, 128)

    found = fake_ggml(values, kind)

    assert found.shape == values.shape
    assert (found[0, 0] == 0.0).all()


def test_q4_0_by_hand() -> None:
    """The greatest magnitude, -8, becomes step 0 of scale 1; 7.6 would be step 16: 15 is kept."""
    values = np.zeros((1, 32), dtype=np.float32)
    values[0, :4] = [-8.0, 7.6, 2.5, -2.5]

    assert fake_ggml(values, "q4_0")[0, :4].tolist() == [-8.0, 7.0, 3.0, -2.0]


def test_a_part_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no multiple of 32"):
        packed(np.zeros((2, 48), dtype=np.float32), "q8_0")
