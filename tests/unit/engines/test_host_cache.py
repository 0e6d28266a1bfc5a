"""Adapter files in memory: the first that fit, and no more."""

from __future__ import annotations

import os
from pathlib import Path

from mileage.engines.host_cache import HostCache


def test_keeps_the_first_that_fit_and_drops_the_others(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_bytes(b"x" * 10_000)
    cache = HostCache()
    cache.keep(files, 25_000)
    assert cache.bytes == 20_000
    cache.keep([files[2]], 25_000)
    assert cache.bytes == 10_000
    cache.keep([files[2]], 0)
    assert cache.bytes == 0


def test_a_directory_is_its_files_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "peft"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"x" * 5000)
    (folder / "adapter_config.json").write_bytes(b"{}")
    (folder / "empty").touch()
    cache = HostCache()
    cache.keep([tmp_path / "nowhere", folder], 1 << 20)
    assert cache.bytes == 5002
    cache.clear()
    assert cache.bytes == 0


def test_a_file_that_is_cut_while_it_is_kept_is_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 1_000_000)
    cache = HostCache()
    cache.keep([file], 2_000_000)
    os.truncate(file, 10)
    cache.keep([file], 2_000_000)
    assert cache.bytes == 10


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 100)
    cache = HostCache()
    cache.keep([file], 1000)
    other = tmp_path / "b"
    other.write_bytes(b"y" * 300)
    other.replace(file)
    cache.keep([file], 1000)
    assert cache.bytes == 300
    cache.clear()
