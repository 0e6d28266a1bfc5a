"""Adapters named by a hub id: fetched once, of a revision, then read without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.hub_server import HubServer

WAIT_S = 120.0
FETCH = """
import sys
from mileage.core.errors import MileageError
from mileage.engines.embedded.hub_model import fetch_hub_model
for name in sys.argv[1:]:
    try:
        print(fetch_hub_model(name, progress=lambda *_: None).read_text())
    except MileageError as error:
        print(type(error).__name__, error)
"""


def fetch(home: Path, url: str, *names: str, offline: bool = False) -> list[str]:
    """What the files say, or why they could not be had; the hub library reads its settings once."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": str(int(offline)),  # else it tries for half a minute
    }
    told = subprocess.run(
        [sys.executable, "-c", FETCH, *names],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def test_a_file_is_fetched_once_of_the_revision_that_is_named(tmp_path: Path) -> None:
    for revision in ("main", "v1"):
        file = tmp_path / "hub" / "acme" / "support" / revision / "lora" / "a.gguf"
        file.parent.mkdir(parents=True)
        file.write_text(f"of {revision}")
    newest, pinned = "hf:acme/support/lora/a.gguf", "hf:acme/support@v1/lora/a.gguf"
    with HubServer(tmp_path / "hub") as hub:
        absent = (
            "hf:acme/support/lora/b.gguf",
            "hf:acme/no/a.gguf",
            "hf:acme/support@v9/lora/a.gguf",
        )
        first = fetch(tmp_path / "cache", hub.url, newest, pinned, *absent)
        assert first[:2] == ["of main", "of v1"]
        assert "has no file lora/b.gguf" in first[2]
        assert "does not exist, or is private" in first[3]
        assert "has no such revision" in first[4]
    names = newest, pinned, "hf:acme/support/lora/c.gguf"
    again = fetch(tmp_path / "cache", hub.url, *names, offline=True)
    assert again[:2] == first[:2], "which needs no network"
    assert "is not in the local cache and the hub cannot be reached" in again[2]
