"""The token file is made once, is for its owner only, and is refused otherwise."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mileage.core.errors import ConfigError
from mileage.gateway.admin.config import AdminConfig
from mileage.gateway.admin.token import load_or_create_token, resolve_token


def test_the_first_start_makes_a_token_that_later_ones_read(tmp_path: Path) -> None:
    path = tmp_path / "state" / "admin-token"
    token = load_or_create_token(path)
    assert len(token) >= 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert load_or_create_token(path) == token
    assert [each.name for each in path.parent.iterdir()] == ["admin-token"]


def test_the_umask_does_not_open_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_create_token(tmp_path / "token")
    finally:
        os.umask(before)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    path, tokens = tmp_path / "token", []
    ready = threading.Barrier(8)

    def start() -> None:
        ready.wait()
        tokens.append(load_or_create_token(path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8
    assert set(tokens) == {path.read_text().strip()}
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("a-token-of-some-length")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_or_create_token(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"short", id="too short"),
        pytest.param(b"two tokens in one file", id="several words"),
        pytest.param("ключ-ключ-ключ-ключ".encode(), id="not ASCII"),
        pytest.param(b"x" * 100_000, id="much too long"),
    ],
)
def test_a_file_without_a_usable_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"admin\.token_file.*one token"):
        load_or_create_token(path)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    load_or_create_token(target)
    link.symlink_to(target)
    os.mkfifo(pipe, 0o600)
    for path, expected in ((link, "symbolic link"), (pipe, "regular"), (tmp_path, "regular")):
        with pytest.raises(ConfigError, match=expected):
            load_or_create_token(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"admin\.token_file.*Not a directory"):
        load_or_create_token(tmp_path / "file" / "token")


def test_the_configuration_says_where_the_token_comes_from(tmp_path: Path) -> None:
    given = resolve_token(AdminConfig(token="a-token-of-some-length"), tmp_path)
    named = resolve_token(AdminConfig(token_file=str(tmp_path / "named")), tmp_path)
    default = resolve_token(AdminConfig(), tmp_path)
    assert given == "a-token-of-some-length"
    assert named == (tmp_path / "named").read_text().strip()
    assert default == (tmp_path / "admin-token").read_text().strip()
