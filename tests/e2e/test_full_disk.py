"""A running gateway whose ledger's disk is full: open or closed, as configured, and back again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import openai
import pytest

from tests.support.engine import ScriptedEngine
from tests.support.gateway import Gateway, wait_until

DISK_BYTES = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill")
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def answered(client: openai.OpenAI) -> bool:
    """One request: whether it was answered; False where it was refused for lack of a record."""
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "hi"}
    ]
    try:
        client.chat.completions.create(model="toy", messages=messages)
    except openai.InternalServerError as error:
        if (error.status_code, error.code) != (503, "ledger_failed"):
            raise
        return False
    return True


@pytest.mark.parametrize("on_failure", ["open", "closed"])
def test_a_full_disk_and_space_again(
    on_failure: Literal["open", "closed"], disk: Path, tmp_path: Path
) -> None:
    with ScriptedEngine(models=("toy",)) as engine:
        config = f"""
[[engines]]
kind = "vllm"
name = "a"
url = "{engine.url}"
[ledger]
directory = "{disk / "ledger"}"
on_failure = "{on_failure}"
segment_bytes_max = 65536
"""
        with Gateway(tmp_path, config=config) as gateway:
            client = gateway.client(max_retries=0)
            assert answered(client)
            ballast = disk / "ballast"
            with ballast.open("wb", buffering=0) as file:
                room = os.statvfs(disk)
                os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
            # A page that was begun before still takes some records.
            full = [answered(client) for _ in range(60)]
            assert all(full) is (on_failure == "open")
            wait_until(lambda: not gateway.admin("/api/v1/status")["ledger"]["ok"], "it shows")
            ballast.unlink()
            again = "can be written again"
            wait_until(lambda: answered(client) and again in gateway.log, "answered and written")
            wait_until(lambda: gateway.admin("/api/v1/status")["ledger"]["ok"], "well again")
            assert "cannot be written" in gateway.log
