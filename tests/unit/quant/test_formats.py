"""Formats by name: bits with their scales, what is fixed beforehand, widths that do not divide."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.quant.formats import FORMATS, UNQUANTISED, check_width, format_named


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        pytest.param("f16", 16.0, id="nothing is stored beside the numbers"),
        pytest.param("int8-tensor", 8.0, id="a scale of all the context is nothing for each"),
        pytest.param("int8-channel", 8.0, id="so is one of a channel"),
        pytest.param("int8-token", 8.25, id="a scale of 16 bits for 64 numbers"),
        pytest.param("e4m3", 8.0, id="no scale"),
        pytest.param("e4m3-token", 8.25, id="FP8 with a token's scale"),
        pytest.param("int4-channel-g32", 5.0, id="scale and minimum of 32 tokens"),
        pytest.param("int4-token-g32", 5.0, id="scale and minimum of 32 channels"),
        pytest.param("int2-token-g64", 2.5, id="of 64 channels"),
        pytest.param("int4-token-g32-sym", 4.5, id="a symmetric group has no minimum"),
        pytest.param("nvfp4", 4.5, id="8 bits of scale for 16 numbers"),
        pytest.param("q8_0", 8.5, id="34 bytes for 32 numbers"),
        pytest.param("q5_1", 6.0, id="24 bytes for 32 numbers"),
        pytest.param("q4_0+rot", 4.5, id="a rotation is free"),
    ],
)
def test_bits_of_one_number_count_its_part_of_the_scales(name: str, bits: float) -> None:
    assert format_named(name).bits_per_value(64) == bits


@pytest.mark.parametrize("name", FORMATS)
def test_every_listed_format_has_a_meaning(name: str) -> None:
    assert format_named(name).name == name
    check_width(format_named(name), 64)


@pytest.mark.parametrize(
    ("name", "static", "open_group"),
    [
        pytest.param("int8-tensor", True, None, id="a tensor's scale"),
        pytest.param("int8-channel", True, None, id="a channel's scale over all tokens"),
        pytest.param("e4m3-head", True, None, id="a head's scale of FP8"),
        pytest.param("nvfp4", True, None, id="NVFP4's scale of the tensor"),
        pytest.param("e4m3", False, None, id="no scale"),
        pytest.param("int8-token", False, None, id="a token's own scale"),
        pytest.param("int4-channel-g32", False, 32, id="KIVI: known when the group is full"),
        pytest.param("q4_0", False, None, id="llama.cpp's blocks"),
    ],
)
def test_when_scales_are_known(name: str, static: bool, open_group: int | None) -> None:
    assert format_named(name).static is static
    assert format_named(name).open_group == open_group


@pytest.mark.parametrize(
    "name",
    [
        "int9-token",
        "int4",
        "int4-tensor-g32",
        "int4-token-g0",
        "q4_2",
        "q4_0+spin",
        "nvfp4+rot",
        "",
    ],
)
def test_an_unknown_format_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--formats: got .*, expected one of f16, int8-tensor"):
        format_named(name, key="--formats")


def test_names_are_read_once_whatever_they_say_twice() -> None:
    assert format_named("f16") is UNQUANTISED


@pytest.mark.parametrize(
    ("name", "width", "said"),
    [
        pytest.param("q8_0", 80, "8, 16, not 32", id="llama.cpp's block of 32"),
        pytest.param("nvfp4", 40, "8, not 16", id="NVFP4's block of 16"),
        pytest.param("int4-token-g64", 96, "8, 16, 32, not 64", id="a group of channels"),
        pytest.param("int8-token+rot", 96, "no power of two", id="a rotation"),
    ],
)
def test_groups_that_do_not_divide_the_width_are_refused(name: str, width: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_width(format_named(name), width)


@pytest.mark.parametrize("name", ["int4-channel-g64", "int8-token", "e4m3", "int8-channel"])
def test_what_groups_no_channels_takes_any_width(name: str) -> None:
    check_width(format_named(name), 100)
