"""Keys that an engine prints are not shown, however its output is cut."""

from __future__ import annotations

import pytest

from mileage.engines.launch.launch_command import launch_command
from mileage.engines.launch.secret_mask import SecretMask

KEY = "sk-0123456789"
TEXT = f"args: api_key='{KEY}' {KEY}{KEY} sk-01 ends with sk-0".encode()


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_it_is_found_wherever_the_output_is_cut(size: int) -> None:
    mask = SecretMask([KEY])
    parts = [mask.feed(TEXT[at : at + size]) for at in range(0, len(TEXT), size)]
    assert b"".join([*parts, mask.end()]) == b"args: api_key='***' ****** sk-01 ends with sk-0"


def test_a_line_is_not_kept_back() -> None:
    assert SecretMask([KEY]).feed(b"loading\n") == b"loading\n"


def test_what_is_short_or_nothing_is_left_alone() -> None:
    assert SecretMask(["k", ""]).feed(b"a key k") == b"a key k"
    assert SecretMask([]).feed(b"x") == b"x"


def test_secrets_of_a_command() -> None:
    words = ["m", "--api-key", "first-key", "second-key", "--hf-token=the-token", "--seed", "1"]
    found = launch_command("vllm", words).secrets
    assert found == {"first-key", "second-key", "the-token"}
    assert launch_command("vllm", ["m"], environ={"VLLM_API_KEY": "k"}).secrets == {"k"}
